"""Hosts, supervisors and launchers die at the worst moment: jobs go on, or nothing of them does, and it is seen."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared.backends.local import layout, locks
from shared.backends.local.messages import CouldNotAsk, KillKind, LaunchKind, ReleaseAnswer, StopAnswer
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import AS_ROOT, REPOSITORY, Backend, eventually, is_running, pids_in
from tests.patience import PATIENCE_SECONDS

WAITS = "echo $$ > ready; while [ ! -e go ]; do sleep 0.01; done; exit 4"
# Leaves a daemon in a session of its own, as stubborn as a process without privileges can be.
STUBBORN = (
    "import os, signal, time, ctypes\n"
    "for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(n, signal.SIG_IGN)\n"
    "if os.fork() == 0:\n"
    "  os.setsid()\n"
    "  if os.fork(): os._exit(0)\n"
    "  open('pids', 'a').write(f'{os.getpid()}\\n'); open('ready', 'w'); time.sleep(600)\n"
    "open('pids', 'a').write(f'{os.getpid()}\\n'); time.sleep(600)\n"
)


async def test_jobs_go_on_when_the_host_is_killed_and_the_next_host_counts_them_in(backend: Backend) -> None:
    request = await backend.request("goes-on", "sh", "-c", WAITS, gpus=5)
    await backend.started(request)
    backend.kill_host()
    seen = backend.seen(request.submission)
    assert seen is not None
    assert seen.state is LocalState.RUNNING
    await backend.start_host("--virtual-gpus", "8")
    status = await backend.client.status()
    assert (status.gpus_free, status.live) == (3, 1)
    answer = await backend.launch(await backend.request("waits", "true", gpus=4))
    assert (answer.kind, answer.sentence) == (LaunchKind.BUSY, "needs 4 GPUs; 3 of 8 are free")
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY
    (backend.directory(request) / "go").touch()
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.code == 4
    await _all_free(backend)


async def test_a_job_that_ends_while_no_host_runs_is_seen_and_frees_its_gpus(backend: Backend) -> None:
    request = await backend.request("alone", "sh", "-c", WAITS, gpus=5)
    await backend.started(request)
    backend.kill_host()
    (backend.directory(request) / "go").touch()
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.code, end.devices) == (4, (0, 1, 2, 3, 4))
    await backend.start_host("--virtual-gpus", "8")
    await _all_free(backend)


async def test_a_stop_works_while_no_host_runs(backend: Backend) -> None:
    request = await backend.request("hostless", "sh", "-c", WAITS)
    await backend.started(request)
    backend.kill_host()
    assert await backend.client.stop(request.submission, 0) is StopAnswer.ASKED
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.signal == signal.SIGKILL


async def test_a_launch_without_a_host_is_unclear_and_status_cannot_be_asked(backend: Backend) -> None:
    backend.end_host()
    request = await backend.request("nobody", "true")
    answer = await backend.launch(request)
    assert answer.kind is LaunchKind.UNCLEAR
    assert "does not run" in answer.sentence
    with pytest.raises(CouldNotAsk, match="does not run"):
        await backend.client.status()


async def test_nothing_survives_a_killed_supervisor_and_it_is_seen_as_gone(backend: Backend) -> None:
    request = await backend.request("orphan", "python", "s.py", files={"s.py": STUBBORN}, gpus=2)
    await backend.started(request)
    await _both_written(backend.directory(request) / "pids")
    pids = pids_in(backend.directory(request) / "pids")
    os.kill(backend.supervisor_pid(request.submission), signal.SIGKILL)
    seen = await backend.until(request.submission, LocalState.GONE)
    assert seen.exit is None
    await eventually(lambda: not [pid for pid in pids if is_running(pid)], "the host has killed the orphans")
    await _all_free(backend)
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED


async def test_the_next_host_sweeps_what_a_dead_supervisor_left_while_none_ran(backend: Backend) -> None:
    request = await backend.request("swept", "python", "s.py", files={"s.py": STUBBORN}, gpus=2)
    await backend.started(request)
    await _both_written(backend.directory(request) / "pids")
    command, daemon = sorted(pids_in(backend.directory(request) / "pids"))
    supervisor = backend.supervisor_pid(request.submission)
    backend.kill_host()
    os.kill(supervisor, signal.SIGKILL)
    await eventually(lambda: not is_running(command), "the command dies with its supervisor, whoever else is gone")
    assert is_running(daemon), "nobody is left to end what it forked"
    await backend.start_host("--virtual-gpus", "8")
    await eventually(lambda: not is_running(daemon), "the next host has ended it")
    await _all_free(backend)


async def test_kill_sweeps_what_a_dead_supervisor_left_though_no_host_runs(backend: Backend) -> None:
    request = await backend.request("swept2", "python", "s.py", files={"s.py": STUBBORN})
    other = await backend.request("other", "sh", "-c", WAITS)
    await backend.started(request)
    await backend.started(other)
    await _both_written(backend.directory(request) / "pids")
    supervisor = backend.supervisor_pid(request.submission)
    backend.kill_host()
    os.kill(supervisor, signal.SIGKILL)
    assert (await backend.client.kill(request.submission)).kind is KillKind.GONE
    assert not [pid for pid in pids_in(backend.directory(request) / "pids") if is_running(pid)]
    (pid,) = pids_in(backend.directory(other) / "ready")
    assert is_running(pid), "another job of the same tenant goes on"


async def test_a_gone_submission_is_not_released_while_something_of_it_lives(backend: Backend) -> None:
    request = await backend.request("leftover", "python", "s.py", files={"s.py": STUBBORN})
    await backend.started(request)
    await _both_written(backend.directory(request) / "pids")
    supervisor = backend.supervisor_pid(request.submission)
    backend.kill_host()
    os.kill(supervisor, signal.SIGKILL)
    await backend.until(request.submission, LocalState.GONE)
    assert await backend.client.release(request.submission) is ReleaseAnswer.LIVE
    pids = pids_in(backend.directory(request) / "pids")
    await eventually(lambda: not [pid for pid in pids if is_running(pid)], "the release has ended it")
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED


@pytest.mark.skipif(not AS_ROOT, reason="without root a job's processes are told by their environment alone")
async def test_a_process_that_hides_its_environment_is_swept_by_its_user(backend: Backend) -> None:
    script = "setsid env -i sh -c 'echo $$ > pid; exec sleep 600' & "
    script += "while [ ! -s pid ]; do sleep 0.01; done; touch ready; wait"
    request = await backend.request("hidden", "sh", "-c", script)
    await backend.started(request)
    (pid,) = pids_in(backend.directory(request) / "pid")
    supervisor = backend.supervisor_pid(request.submission)
    backend.kill_host()
    os.kill(supervisor, signal.SIGKILL)
    await eventually(lambda: not is_running(supervisor), "the supervisor is dead")
    assert is_running(pid)
    assert (await backend.client.kill(request.submission)).kind is KillKind.GONE
    assert not is_running(pid)


async def test_a_launcher_that_died_before_the_answer_finds_its_submission(backend: Backend) -> None:
    request = await backend.request("adopted", "sh", "-c", WAITS)
    assert await backend.client.find("adopted", 1) == ()
    asking = asyncio.create_task(backend.launch(request))
    await eventually(backend.record(request.submission, layout.SPEC).exists, "the intent is recorded")
    asking.cancel()
    await asyncio.wait([asking])
    (found,) = await backend.client.find("adopted", 1)
    assert found.submission == request.submission
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY
    adopted = await backend.client.adopt(request.submission)
    assert adopted is not None
    assert adopted.state in (LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.RUNNING)


async def test_one_root_has_one_host(backend: Backend) -> None:
    command = ["-m", "shared.backends.local.host", "--root", str(backend.root)]
    second = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=REPOSITORY, stderr=subprocess.PIPE)
    _, said = await second.communicate()
    assert second.returncode == 75
    assert b"another host serves" in said
    assert (await backend.client.status()).live == 0, "the first one still answers"


async def test_a_supervisor_holds_the_lock_on_its_spec_and_its_job_does_not(backend: Backend) -> None:
    request = await backend.request("lock", "sh", "-c", WAITS)
    await backend.started(request)
    spec = str(backend.record(request.submission, layout.SPEC))
    assert locks.is_held(spec)
    os.kill(backend.supervisor_pid(request.submission), signal.SIGKILL)
    await eventually(lambda: not locks.is_held(spec), "the lock is free once the supervisor is dead")


async def _all_free(backend: Backend) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while ((status := await backend.client.status()).gpus_free, status.live) != (8, 0):
        assert time.monotonic() < deadline, f"GPUs or slots are still held: {status}"
        await asyncio.sleep(0.005)


async def _both_written(path: Path) -> None:
    await eventually(lambda: len(pids_in(path)) == 2, "both processes have written their pids")
