"""A time limit and the warning before it, and a command that saves its state for a pause but goes on."""

import signal
from typing import Any

from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import Backend, eventually

NOTES = "trap 'echo USR2 >> told' USR2; trap 'echo TERM >> told; exit 4' TERM; while :; do sleep 0.02; done"
SAVES_AND_GOES_ON = "trap 'touch saved' USR1; touch ready; while :; do sleep 0.02; done"


async def test_warns_once_before_the_limit_and_then_asks_for_the_end(backend: Backend) -> None:
    warning: dict[str, Any] = {"warning_signal": signal.SIGUSR2, "warning_seconds": 1, "stop_grace_seconds": 600}
    request = await backend.request("warned", "sh", "-c", NOTES, time_limit_seconds=3, **warning)
    end = (await backend.run(request)).exit
    assert end is not None
    assert (end.reason, end.code, end.stop_seen_at) == ("time_limit", 4, None)
    assert (backend.directory(request) / "told").read_text().split() == ["USR2", "TERM"]


async def test_what_saves_its_state_and_goes_on_is_killed_after_the_pauses_grace(backend: Backend) -> None:
    request = await backend.request("saves", "sh", "-c", SAVES_AND_GOES_ON)
    await backend.started(request)
    await backend.client.stop(request.submission, 600, signal.SIGUSR1, pausing=True)
    await eventually((backend.directory(request) / "saved").exists, "it has saved its state")
    await backend.client.stop(request.submission, 0.1, signal.SIGUSR1, pausing=True)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.signal, end.reason) == (signal.SIGKILL, None)
    assert end.stop_seen_at is not None


async def test_a_stop_after_a_pause_is_told_though_its_grace_is_longer(backend: Backend) -> None:
    script = "trap 'touch saved' USR1; trap 'exit 6' TERM; touch ready; while :; do sleep 0.02; done"
    request = await backend.request("paused-stopped", "sh", "-c", script)
    await backend.started(request)
    await backend.client.stop(request.submission, 600, signal.SIGUSR1, pausing=True)
    await eventually((backend.directory(request) / "saved").exists, "the pause is told")
    await backend.client.stop(request.submission, 3600)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.code == 6


async def test_a_pause_after_a_stop_is_not_told(backend: Backend) -> None:
    script = (
        "trap 'touch told' USR1; trap 'touch asked' TERM; touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 0"
    )
    request = await backend.request("late-pause", "sh", "-c", script)
    await backend.started(request)
    await backend.client.stop(request.submission, 600)
    await eventually((backend.directory(request) / "asked").exists, "the stop is told")
    await backend.client.stop(request.submission, 0, signal.SIGUSR1, pausing=True)
    (backend.directory(request) / "go").touch()
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.code == 0
    assert not (backend.directory(request) / "told").exists()


async def test_only_a_resumed_run_is_told_so(backend: Backend) -> None:
    for job, resumed in (("first", False), ("resumed", True)):
        request = await backend.request(job, "env", environment={"TIDEGATE_RESUME": "mine"}, resumed=resumed)
        await backend.run(request)
        lines = backend.output(request).splitlines()
        assert [line for line in lines if "RESUME" in line] == (["TIDEGATE_RESUME=1"] if resumed else [])
