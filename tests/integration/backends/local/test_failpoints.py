"""Host and supervisor are killed at every named place: what was asked for again has run once, or not at all."""

import asyncio
import json
import os
import signal

import pytest

from shared.backends.local import layout, locks, processes
from shared.backends.local.messages import KillKind, LaunchKind, LaunchRequest
from shared.backends.local.sightings import LocalState
from shared.runtime.failpoints import FOLDER, POINTS, RUNNER, SUPERVISOR
from tests.integration.backends.local.harness import Backend, Failpoints, eventually, is_running

RUNS = ("sh", "-c", "echo run >> ledger")
STOPPABLE = ("sh", "-c", "echo run >> ledger; while true; do sleep 0.02; done")
OVER = (LocalState.EXITED, LocalState.GONE)
RUNS_AFTER = {
    "claim.before": {1},
    "claim.between": {0},
    "claim.after": {0},
    "start.before": {0},
    "start.after": {0, 1},
    "stop.before": {1},
    "stop.after": {1},
    "exit.before": {1},
    "exit.after": {1},
}
"""How often a command has run whose supervisor was killed there, once it was asked for again and is over."""


@pytest.fixture
async def places(backend: Backend) -> Failpoints:
    """The backend's host obeys orders."""
    backend.end_host()
    places = backend.use_failpoints()
    await backend.start_host("--virtual-gpus", "8")
    return places


def runs(backend: Backend, request: LaunchRequest) -> int:
    """How often the command has run."""
    ledger = backend.directory(request) / "ledger"
    return len(ledger.read_text().split()) if ledger.exists() else 0


async def until_runs(backend: Backend, request: LaunchRequest) -> None:
    """Wait until the command has run once."""
    await eventually(lambda: runs(backend, request), "it runs")


async def until_dead(backend: Backend, request: LaunchRequest) -> None:
    """Wait until its supervisor holds nothing: an order is obeyed a moment earlier, and until then it may yet run."""
    await eventually(lambda: not locks.is_held(str(backend.record(request.submission, layout.SPEC))), "it is dead")


async def until_over(backend: Backend, request: LaunchRequest) -> None:
    """Wait until nothing of it is left."""

    def is_over() -> bool:
        seen = backend.seen(request.submission)
        return seen is not None and seen.state in OVER

    await eventually(is_over, f"{request.submission} is over")


async def ask_until(backend: Backend, request: LaunchRequest, *wanted: LaunchKind) -> LaunchKind:
    """Ask for the same again, as a launcher does, until the answer is one of these."""
    while (answer := await backend.launch(request)).kind not in wanted:
        assert answer.kind in (LaunchKind.BUSY, LaunchKind.UNCLEAR), answer
    return answer.kind


@pytest.mark.parametrize("point", [point for point, row in POINTS.items() if RUNNER in row.services])
async def test_a_host_killed_around_the_spawn_has_launched_once_when_it_is_asked_again(
    backend: Backend, places: Failpoints, point: str
) -> None:
    places.arm(f"runner.{point}")
    request = await backend.request("spawned", *RUNS)
    assert (await backend.launch(request)).kind is LaunchKind.UNCLEAR
    backend.end_host(signal.SIGKILL)
    assert places.obeyed(f"runner.{point}")
    await backend.start_host("--virtual-gpus", "8")
    await ask_until(backend, request, LaunchKind.ACCEPTED, LaunchKind.ALREADY)
    await backend.until(request.submission, LocalState.EXITED)
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY
    assert runs(backend, request) == 1


async def test_a_frozen_host_that_goes_on_after_its_launch_was_revoked_runs_nothing(
    backend: Backend, places: Failpoints
) -> None:
    places.arm("runner.spawn.before", "stop")
    request = await backend.request("thawed", *RUNS)
    asking = asyncio.create_task(backend.launch(request))
    host = await places.until_obeyed("runner.spawn.before")
    assert await backend.client.revoke_all([backend.directory(request).parent]) == [()]
    os.kill(host, signal.SIGCONT)
    await asking
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.ran, end.reason) == (False, "revoked")
    assert runs(backend, request) == 0


async def test_a_supervisor_killed_anywhere_never_lets_the_command_run_twice(
    backend: Backend, places: Failpoints
) -> None:
    for point, right in RUNS_AFTER.items():
        stops = point.startswith("stop.")
        request = await backend.request(point.replace(".", "-"), *(STOPPABLE if stops else RUNS))
        places.arm(f"supervisor.{point}", "kill 2")
        submission = await backend.submit(request)
        if stops:
            await until_runs(backend, request)
            await backend.client.stop(submission, 0)
        await places.until_obeyed(f"supervisor.{point}")
        await until_dead(backend, request)
        answer = await ask_until(backend, request, LaunchKind.ACCEPTED, LaunchKind.ALREADY)
        assert (answer is LaunchKind.ACCEPTED) == (point == "claim.before"), f"{point}: only what never ran is run"
        await until_over(backend, request)
        assert runs(backend, request) in right, point


async def test_a_supervisor_frozen_between_its_two_claims_can_be_ended(backend: Backend, places: Failpoints) -> None:
    places.arm("supervisor.claim.between", "stop")
    request = await backend.request("half-claimed", *RUNS)
    submission = await backend.submit(request)
    frozen = await places.until_obeyed("supervisor.claim.between")
    while (await backend.client.kill(submission, 2)).kind is KillKind.UNCLEAR:
        pass
    assert not is_running(frozen)
    assert runs(backend, request) == 0


async def test_what_died_before_its_claim_and_is_counted_still_was_not_launched_before(
    backend: Backend, places: Failpoints
) -> None:
    places.arm("supervisor.claim.before", "stop")
    request = await backend.request("unsettled", *RUNS)
    await backend.submit(request)
    supervisor = await places.until_obeyed("supervisor.claim.before")
    directory = os.open(backend.root, os.O_PATH)
    reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{directory}/{layout.SOCKET}")
    os.close(directory)
    writer.write(b'{"op": "status"}\n')
    await (
        reader.readline()
    )  # the host has taken the connection: what comes now it hears before it looks at its children
    host = backend.host
    assert host is not None
    await eventually(lambda: (processes.stat_fields(host.pid) or [""])[0] == "S", "the host waits")
    host.send_signal(signal.SIGSTOP)
    os.kill(supervisor, signal.SIGKILL)
    await until_dead(backend, request)
    writer.write(json.dumps({"op": "launch", "launches": [request.fields()]}).encode() + b"\n")
    await writer.drain()
    host.send_signal(signal.SIGCONT)
    (answer,) = json.loads(await reader.readline())["answers"]
    writer.close()
    assert answer["answer"] in ("busy", "accepted"), "`already` would have lost it"
    await ask_until(backend, request, LaunchKind.ACCEPTED, LaunchKind.ALREADY)
    await backend.until(request.submission, LocalState.EXITED)
    assert runs(backend, request) == 1


def test_every_place_of_a_supervisor_is_tried() -> None:
    assert set(RUNS_AFTER) == {point for point, row in POINTS.items() if SUPERVISOR in row.services}


async def test_no_job_is_told_of_the_orders(backend: Backend, places: Failpoints) -> None:
    request = await backend.request("innocent", "sh", "-c", "env; ls -l /proc/self/fd")
    await backend.run(request)
    said = backend.output(request)
    assert "TIDEGATE_SUBMISSION" in said
    assert FOLDER not in said
    assert str(places.folder) not in said
