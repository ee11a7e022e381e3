"""How a command ends is recorded as it was, and nothing of it is left."""

import os
import re
import signal
import time
from datetime import UTC, timedelta

import pytest

from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import TENANT, Backend, eventually, is_running, pids_in


async def test_records_a_normal_exit_with_its_times(backend: Backend) -> None:
    request = await backend.request("ok", "sh", "-c", "echo out; echo err >&2")
    end = (await backend.run(request)).exit
    assert end is not None
    assert (end.ran, end.code, end.signal, end.reason, end.stop_seen_at) == (True, 0, None, None, None)
    assert (end.job, end.attempt, end.tenant) == ("ok", 1, TENANT)
    assert end.started_at is not None
    assert end.started_at.tzinfo is UTC
    assert end.ended_at - end.started_at == timedelta(milliseconds=end.duration_ms)
    assert (backend.output(request), backend.output(request, "stderr")) == ("out\n", "err\n")


async def test_records_exit_code_3(backend: Backend) -> None:
    end = (await backend.run(await backend.request("three", "sh", "-c", "exit 3"))).exit
    assert end is not None
    assert (end.ran, end.code, end.signal, end.reason) == (True, 3, None, None)


async def test_records_the_signal_that_killed_it_and_no_code(backend: Backend) -> None:
    end = (await backend.run(await backend.request("killed", "sh", "-c", "kill -SEGV $$"))).exit
    assert end is not None
    assert (end.ran, end.code, end.signal, end.reason) == (True, None, signal.SIGSEGV, None)


async def test_records_a_job_that_is_over_before_anybody_looks(backend: Backend) -> None:
    request = await backend.request("short", "sleep", "0.01")
    asked = time.monotonic()
    seen = await backend.run(request)
    took_ms = (time.monotonic() - asked) * 1000
    assert seen.exit is not None
    assert seen.started is not None, "its start is on record though nobody saw it run"
    assert seen.exit.code == 0
    assert 10 <= seen.exit.duration_ms <= took_ms


async def test_says_that_a_command_was_not_found(backend: Backend) -> None:
    end = (await backend.run(await backend.request("typo", "pythn", "train.py"))).exit
    assert end is not None
    assert (end.ran, end.code, end.reason, end.started_at) == (False, 127, "command_not_found", None)
    assert "'pythn' was not found on PATH" in (end.sentence or "")


async def test_says_that_a_relative_command_was_not_found(backend: Backend) -> None:
    end = (await backend.run(await backend.request("typo2", "./trian.sh"))).exit
    assert end is not None
    assert (end.code, end.reason) == (127, "command_not_found")


@pytest.mark.parametrize(
    ("files", "mode", "problem"),
    [
        pytest.param({"run": "#!/bin/sh\n"}, 0o644, "is it marked executable", id="no execute bit"),
        pytest.param(
            {"run": "#!/nowhere/interpreter\n"}, 0o755, "interpreter named in its first line", id="no interpreter"
        ),
        pytest.param({"run": "echo hello\n"}, 0o755, "first line names no interpreter", id="no first line"),
    ],
)
async def test_says_why_a_command_cannot_be_executed(
    backend: Backend, files: dict[str, str], mode: int, problem: str
) -> None:
    request = await backend.request("noexec", "./run", files=files)
    (backend.directory(request) / "run").chmod(mode)
    end = (await backend.run(request)).exit
    assert end is not None
    assert (end.ran, end.code, end.reason) == (False, 126, "cannot_execute")
    assert problem in (end.sentence or "")


async def test_says_that_the_working_directory_is_missing(backend: Backend) -> None:
    end = (await backend.run(await backend.request("nodir", "true", stage=False))).exit
    assert end is not None
    assert (end.ran, end.reason) == (False, "working_directory_missing")


async def test_a_daemon_forked_twice_does_not_survive_its_job(backend: Backend) -> None:
    script = "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n"
    script += (
        "  open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid'); time.sleep(600)\n os._exit(0)\n"
    )
    script += "while not os.path.exists('pid'): time.sleep(0.005)\n"
    request = await backend.request("daemon", "python", "d.py", files={"d.py": script})
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 0
    (pid,) = pids_in(backend.directory(request) / "pid")
    assert not is_running(pid), "the record of the end comes after the end of everything"


async def test_children_in_sessions_of_their_own_do_not_survive(backend: Backend) -> None:
    script = "for i in 1 2 3; do setsid sh -c 'echo $$ >> pids; exec sleep 600' & done\n"
    script += 'while [ "$(wc -l < pids)" != 3 ]; do sleep 0.01; done; exit 5\n'
    request = await backend.request("sessions", "sh", "s.sh", files={"s.sh": script, "pids": ""})
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 5
    pids = pids_in(backend.directory(request) / "pids")
    assert len(pids) == 3
    assert not [pid for pid in pids if is_running(pid)]


async def test_a_chain_of_forks_is_caught(backend: Backend) -> None:
    script = "import os\nif os.fork() == 0:\n  os.setsid()\n  while True:\n    if os.fork() != 0: os._exit(0)\n"
    request = await backend.request("chain", "python", "c.py", files={"c.py": script})
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 0
    marker = f"TIDEGATE_SUBMISSION={request.submission}".encode()
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and marker in _environ(pid)]


def _environ(pid: str) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


async def test_ends_a_job_at_its_time_limit(backend: Backend) -> None:
    request = await backend.request("endless", "sleep", "600", time_limit_seconds=1)
    end = (await backend.run(request)).exit
    assert end is not None
    assert (end.ran, end.signal, end.reason) == (True, signal.SIGTERM, "time_limit")
    assert "time limit of 1 s" in (end.sentence or "")


async def test_gives_a_job_an_environment_built_from_nothing(backend: Backend) -> None:
    os.environ["A_SECRET_OF_THE_SERVICE"] = "s3cret"
    request = await backend.request("env", "env", environment={"MINE": "1", "HOME": "/elsewhere"}, gpus=2)
    await backend.run(request)
    variables = dict(line.split("=", 1) for line in backend.output(request).splitlines())
    own = {name for name in variables if name.startswith("TIDEGATE_")}
    names = ("JOB_ID", "RUN_ID", "ATTEMPT", "TENANT", "OUTPUT_DIR", "SUBMISSION")
    assert own == {f"TIDEGATE_{name}" for name in names}
    assert variables["TIDEGATE_OUTPUT_DIR"] == str(backend.directory(request))
    assert variables["HOME"] == str(backend.directory(request).parent / "home")
    assert re.fullmatch(r"\d,\d", variables["CUDA_VISIBLE_DEVICES"])
    assert variables["MINE"] == "1"
    expected = {"PATH", "HOME", "LANG", "USER", "LOGNAME", "SHELL", "TMPDIR", "MINE", "CUDA_VISIBLE_DEVICES"}
    assert set(variables) - own - {"PYTHONUNBUFFERED", "TMPDIR"} == expected - {"TMPDIR"}


async def test_values_of_the_environment_are_in_no_file(backend: Backend) -> None:
    await backend.run(await backend.request("secret", "true", environment={"TOKEN": "hush-hush-42"}))
    found = [path for path in backend.root.rglob("*") if path.is_file() and b"hush-hush-42" in path.read_bytes()]
    assert found == []


_KEPT_BY_LIBC = 0b11 << 31
"""Signals 32 and 33 are the C library's own (signal(7)): whether they are ignored is inherited and out of reach."""


async def test_a_job_holds_nothing_of_its_supervisor(backend: Backend) -> None:
    script = "ls /proc/self/fd; grep -E 'SigIgn|SigBlk|NoNewPrivs' /proc/self/status; ulimit -c; umask"
    request = await backend.request("fds", "sh", "-c", script)
    await backend.run(request)
    lines = backend.output(request).split()
    assert lines[:4] == ["0", "1", "2", "3"], "3 is the listing's own"
    ignored = int(lines.pop(7), 16) & ~_KEPT_BY_LIBC
    assert (ignored, lines[4:]) == (0, ["SigBlk:", "0" * 16, "SigIgn:", "NoNewPrivs:", "1", "0", "0077"])


async def test_arguments_arrive_byte_for_byte(backend: Backend) -> None:
    arguments = ["a b", "$HOME", "-rf", "it's", '"q"', "tab\there", "line\nbreak", "café", "\udcff\udcfe", ""]
    request = await backend.request(
        "args", "python", "-c", "import sys, os; print(list(map(os.fsencode, sys.argv[1:])))", *arguments
    )
    await backend.run(request)
    assert backend.output(request).strip() == str([os.fsencode(argument) for argument in arguments])


async def test_the_host_keeps_no_zombies(backend: Backend) -> None:
    requests = [await backend.request(f"z{index}", "true") for index in range(10)]
    for request in requests:
        await backend.submit(request)
    for request in requests:
        await backend.until(request.submission, LocalState.EXITED)
    assert backend.host is not None
    pid = backend.host.pid
    await eventually(lambda: not _children(pid), "no child is left")


def _children(parent: int) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(pid)
    return found
