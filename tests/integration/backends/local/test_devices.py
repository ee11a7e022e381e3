"""GPUs are handed out exclusively, and are free again when nothing of their job is left."""

import asyncio
import time

from shared.backends.local.capacity import capacity
from shared.backends.local.messages import LaunchKind, LaunchRequest
from shared.backends.local.observer import LocalState
from shared.backends.local.options import SLOTS_DEFAULT
from tests.integration.backends.local.harness import Backend, eventually
from tests.patience import PATIENCE_SECONDS

HOLDS = "echo $CUDA_VISIBLE_DEVICES; touch ready; while [ ! -e go ]; do sleep 0.01; done"


async def test_hands_out_each_gpu_once_and_says_the_numbers_when_they_are_gone(backend: Backend) -> None:
    first = await backend.request("first", "sh", "-c", HOLDS, gpus=5)
    second = await backend.request("second", "sh", "-c", HOLDS, gpus=3)
    third = await backend.request("third", "sh", "-c", HOLDS, gpus=1)
    answers = await backend.client.launch([first, second, third])
    assert [answer.kind for answer in answers] == [LaunchKind.ACCEPTED, LaunchKind.ACCEPTED, LaunchKind.BUSY]
    assert answers[2].sentence == "needs 1 GPUs; 0 of 8 are free"
    held = [(await backend.until(request.submission, LocalState.RUNNING)).started for request in (first, second)]
    assert [started.devices for started in held if started is not None] == [(0, 1, 2, 3, 4), (5, 6, 7)]
    await eventually((backend.directory(second) / "ready").exists, "the second has printed its devices")
    assert backend.output(second) == "5,6,7\n"
    (backend.directory(second) / "go").touch()
    await backend.until(second.submission, LocalState.EXITED)
    await _accepted_soon(backend, third)


async def _accepted_soon(backend: Backend, request: LaunchRequest) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := await backend.launch(request)).kind is not LaunchKind.ACCEPTED:
        assert answer.kind is LaunchKind.BUSY
        assert time.monotonic() < deadline, "the GPUs were not freed"
        await asyncio.sleep(0.005)


async def test_a_job_without_gpus_sees_none_and_needs_none(backend: Backend) -> None:
    await backend.submit(await backend.request("all", "sh", "-c", HOLDS, gpus=8))
    request = await backend.request("none", "sh", "-c", 'echo "<$CUDA_VISIBLE_DEVICES>"')
    await backend.run(request)
    assert backend.output(request) == "<>\n"


async def test_slots_are_counted_too(backend: Backend) -> None:
    backend.end_host()
    await backend.start_host("--virtual-gpus", "0", "--slots", "1")
    await backend.submit(await backend.request("one", "sh", "-c", HOLDS))
    answer = await backend.launch(await backend.request("two", "true"))
    assert (answer.kind, answer.reason, answer.sentence) == (LaunchKind.BUSY, "slots", "1 of 1 jobs run here already")


async def test_capacity_tells_what_is_free_and_whether_a_host_is_there(backend: Backend) -> None:
    request = await backend.request("some", "sh", "-c", HOLDS, gpus=3)
    await backend.started(request)
    now = capacity(backend.root, backend.observer.observe())
    assert now is not None
    assert (now.gpus_total, now.gpus_free, now.virtual, now.host_alive) == (8, 5, True, True)
    assert (now.slots_total, now.slots_free) == (SLOTS_DEFAULT, SLOTS_DEFAULT - 1)
    backend.kill_host()
    now = capacity(backend.root, backend.observer.observe())
    assert now is not None
    assert (now.gpus_free, now.host_alive) == (5, False)
