"""Stopping is honest: recorded before the signal, for all processes, and never longer than its grace."""

import json
import os
import signal
from datetime import UTC, datetime

import pytest

from shared.backends.local import layout, posthumous
from shared.backends.local.messages import KillKind, StopAnswer
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import Backend, eventually, is_running, pids_in

OBEYS = "trap 'exit 9' TERM; touch ready; while :; do sleep 0.01; done"
IGNORES = "trap '' TERM; touch ready; while :; do sleep 0.01; done"


async def test_records_that_it_saw_the_stop_before_it_sends_the_signal(backend: Backend) -> None:
    script = "trap 'date +%s%N > told; exit 9' TERM; touch ready; while :; do sleep 0.01; done"
    request = await backend.request("seen", "sh", "-c", script)
    await backend.started(request)
    assert await backend.client.stop(request.submission, 600) is StopAnswer.ASKED
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.code, end.signal) == (9, None), "what the command made of the signal is its real outcome"
    assert end.stop_seen_at is not None
    assert end.stop_seen_at <= end.ended_at
    written = backend.record(request.submission, layout.STOP_SEEN).stat().st_mtime_ns
    assert written <= int((backend.directory(request) / "told").read_text())


async def test_kills_what_ignores_the_signal_after_the_grace(backend: Backend) -> None:
    request = await backend.request("stubborn", "sh", "-c", IGNORES)
    await backend.started(request)
    await backend.client.stop(request.submission, 0.2)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.code, end.signal, end.reason) == (None, signal.SIGKILL, None)
    assert end.stop_seen_at is not None


async def test_signals_every_process_whatever_its_session(backend: Backend) -> None:
    child = "trap 'echo $$ >> told; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.01; done"
    script = 'setsid sh -c "$CHILD" & sh -c "$CHILD" & trap "echo $$ >> told; wait; exit 0" TERM\n'
    script += 'while [ "$(wc -l < pids)" != 2 ]; do sleep 0.01; done; touch ready; wait\n'
    request = await backend.request(
        "all", "sh", "s.sh", files={"s.sh": script, "pids": ""}, environment={"CHILD": child}
    )
    await backend.started(request)
    await backend.client.stop(request.submission, 600)
    await backend.until(request.submission, LocalState.EXITED)
    told = pids_in(backend.directory(request) / "told")
    assert set(pids_in(backend.directory(request) / "pids")) <= set(told)
    assert len(told) == len(set(told)), "nobody is told twice"


async def test_passes_on_the_signal_that_was_asked_for(backend: Backend) -> None:
    script = "trap 'touch checkpoint; exit 0' USR1; touch ready; while :; do sleep 0.01; done"
    request = await backend.request("checkpoint", "sh", "-c", script)
    await backend.started(request)
    await backend.client.stop(request.submission, 600, signal.SIGUSR1)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.code == 0
    assert (backend.directory(request) / "checkpoint").exists()


async def test_a_second_stop_with_a_shorter_grace_counts(backend: Backend) -> None:
    request = await backend.request("twice", "sh", "-c", IGNORES)
    await backend.started(request)
    await backend.client.stop(request.submission, 3600)
    await eventually(backend.record(request.submission, layout.STOP_SEEN).exists, "the first stop is seen")
    await backend.client.stop(request.submission, 0)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.signal == signal.SIGKILL


async def test_a_stop_request_is_found_though_its_writer_died_before_the_nudge(backend: Backend) -> None:
    request = await backend.request("no-nudge", "sh", "-c", OBEYS)
    await backend.started(request)
    asked = {"submission": request.submission, "grace_seconds": 600, "signal": int(signal.SIGTERM)}
    temporary = backend.root / "stop.tmp"
    temporary.write_text(json.dumps(asked))
    temporary.rename(backend.record(request.submission, layout.STOP))
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.code == 9


async def test_an_end_of_its_own_before_the_stop_shows_no_stop(backend: Backend) -> None:
    request = await backend.request("first", "true")
    await backend.run(request)
    assert await backend.client.stop(request.submission, 5) is StopAnswer.ENDED
    end = backend.seen(request.submission)
    assert end is not None
    assert end.exit is not None
    assert end.exit.stop_seen_at is None


async def test_stopping_what_never_was_is_no_stop(backend: Backend) -> None:
    assert await backend.client.stop("test.nobody.a1.t", 5) is StopAnswer.ABSENT


async def test_kill_waits_for_the_record_of_the_end(backend: Backend) -> None:
    request = await backend.request("victim", "sh", "-c", IGNORES)
    await backend.started(request)
    answer = await backend.client.kill(request.submission)
    assert answer.kind is KillKind.ENDED
    assert answer.exit is not None
    assert (answer.exit.signal, answer.exit.ran) == (signal.SIGKILL, True)
    assert answer.exit.ended_at <= datetime.now(UTC)


async def test_kill_ends_a_job_whose_supervisor_hangs(backend: Backend) -> None:
    request = await backend.request("hangs", "sh", "-c", f"echo $$ > pid; {IGNORES}")
    await backend.started(request)
    os.kill(backend.supervisor_pid(request.submission), signal.SIGSTOP)
    while (answer := await backend.client.kill(request.submission, timeout_seconds=2)).kind is KillKind.UNCLEAR:
        pass
    assert answer.exit is not None, "its end is recorded in its supervisor's place"
    assert (answer.exit.signal, answer.exit.sentence) == (signal.SIGKILL, posthumous.SENTENCE)
    assert answer.exit.stop_seen_at is not None
    assert answer.exit.started_at is not None
    assert answer.exit.started_at < answer.exit.ended_at <= datetime.now(UTC)
    (pid,) = pids_in(backend.directory(request) / "pid")
    assert not is_running(pid)


@pytest.mark.parametrize(
    "content", ["", "{", '{"grace_seconds": "x", "signal": 9999}', "[]"], ids=["empty", "torn", "odd", "list"]
)
async def test_an_odd_stop_request_breaks_no_supervisor(backend: Backend, content: str) -> None:
    request = await backend.request("odd", "sh", "-c", OBEYS)
    await backend.started(request)
    backend.record(request.submission, layout.STOP).write_text(content)
    await backend.client.stop(request.submission, 600)
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert end.stop_seen_at is not None
