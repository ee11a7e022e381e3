"""Stops, pauses, warnings and Slurm's own signals reach everything of the command, and are recorded first."""

import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

import pytest

from shared.backends.slurm import script as script_module
from shared.backends.slurm.records import request_stop
from shared.backends.slurm.script import NUDGE_SIGNAL, WARNING_SIGNAL
from tests.servers import wait_until
from tests.unit.backends.slurm.runs import Attempt, is_running

NUDGE = getattr(signal, f"SIG{NUDGE_SIGNAL}")
WARNING = getattr(signal, f"SIG{WARNING_SIGNAL}")
ASKED_AT = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
# A shell that says what it hears. Its sleep hears it, too, and ends.
HEARS = """
trap '[ -e ../stop_seen.0.json ] && echo TERM recorded >>heard || echo TERM >>heard; [ "$STAYS" ] || exit 9' TERM
trap 'echo INT >>heard' INT
trap 'echo USR1 >>heard' USR1
echo $$ >pid
while :; do sleep 1000 & wait $!; done
"""


def ask(attempt: Attempt, kind: Literal["stop", "pause"], name: str, grace_seconds: int) -> None:
    """As the launcher does before it tells the runner."""
    request_stop(str(attempt.directory), kind, name, grace_seconds, ASKED_AT)


def heard(attempt: Attempt) -> list[str]:
    """What the command has heard."""
    path = attempt.work / "heard"
    return path.read_text().splitlines() if path.exists() else []


def hears(attempt: Attempt, *what: str) -> Callable[[], bool]:
    """A condition."""
    return lambda: heard(attempt) == list(what)


def test_slurms_term_is_recorded_and_then_passed_on(attempt: Attempt) -> None:
    order = attempt.order("sh", "-c", HEARS)
    process = attempt.start(attempt.submit_with(order, "mv", 'sleep 0.3; exec /usr/bin/mv "$@"'))
    attempt.await_file("pid")
    process.terminate()
    assert attempt.end(process)[0] == 9
    assert heard(attempt) == ["TERM recorded"]
    records = attempt.records()
    end, seen = records.exits[0], records.stop_seen[0]
    assert (end.code, end.signal, seen.by) == (9, None, "signal")
    assert end.stop_seen == seen
    assert end.started_at is not None
    assert end.started_at <= seen.at <= end.ended_at


def test_a_second_term_is_passed_on_and_the_first_counts(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS, environment={"STAYS": "1"})))
    pid = int(attempt.await_file("pid"))
    process.terminate()
    wait_until(hears(attempt, "TERM recorded"), "the first")
    first = attempt.records().stop_seen[0]
    process.terminate()
    wait_until(hears(attempt, "TERM recorded", "TERM recorded"), "the second")
    os.killpg(pid, signal.SIGKILL)
    assert attempt.end(process)[0] == -signal.SIGKILL
    assert attempt.records().exits[0].stop_seen == first


def test_everything_of_the_commands_group_hears_it(attempt: Attempt) -> None:
    child = "trap 'echo child >>heard; exit' TERM; sleep 1000 & echo up >up; wait"
    command = f'sh -c "{child}" & trap "wait; echo parent >>heard; exit 4" TERM; echo $$ >pid; wait; wait'
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", command)))
    attempt.await_file("pid")
    attempt.await_file("up")
    process.terminate()
    assert attempt.end(process)[0] == 4
    assert heard(attempt) == ["child", "parent"]


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2"])
def test_a_pause_sends_its_own_signal(attempt: Attempt, name: str) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", "echo $$ >pid; exec sleep 1000")))
    attempt.await_file("pid")
    ask(attempt, "pause", name, 1000)
    process.send_signal(NUDGE)
    number = getattr(signal, f"SIG{name}")
    assert attempt.end(process)[0] == -number
    end = attempt.records().exits[0]
    assert end.signal == number
    assert end.stop_seen is not None
    assert end.stop_seen.by == "request"


def test_what_does_not_end_within_its_grace_is_killed(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS, environment={"STAYS": "1"})))
    pid = int(attempt.await_file("pid"))
    ask(attempt, "stop", "TERM", 1)
    process.send_signal(NUDGE)
    assert attempt.end(process)[0] == -signal.SIGKILL
    assert heard(attempt) == ["TERM recorded"]
    wait_until(lambda: not is_running(pid), "nothing is left")


def test_without_grace_it_is_killed_at_once(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS)))
    attempt.await_file("pid")
    ask(attempt, "stop", "TERM", 0)
    process.send_signal(NUDGE)
    assert attempt.end(process)[0] == -signal.SIGKILL
    assert heard(attempt) == []
    assert attempt.records().stop_seen[0].by == "request"


def test_a_stop_takes_over_from_a_pause_and_never_a_pause_from_a_stop(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS, environment={"STAYS": "1"})))
    attempt.await_file("pid")
    ask(attempt, "pause", "USR1", 1)
    process.send_signal(NUDGE)
    wait_until(hears(attempt, "USR1"), "the pause")
    ask(attempt, "stop", "INT", 1000)
    process.send_signal(NUDGE)
    wait_until(hears(attempt, "USR1", "INT"), "the stop")
    ask(attempt, "pause", "USR1", 0)
    process.send_signal(NUDGE)
    process.terminate()
    wait_until(hears(attempt, "USR1", "INT", "TERM recorded"), "what came after the pause")
    ask(attempt, "stop", "TERM", 0)
    process.send_signal(NUDGE)
    assert attempt.end(process)[0] == -signal.SIGKILL


def test_a_request_that_nobody_told_of_is_found(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_module, "LOOK_SECONDS", 1)
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS)))
    attempt.await_file("pid")
    ask(attempt, "stop", "TERM", 1000)
    assert attempt.end(process)[0] == 9


@pytest.mark.parametrize(
    "text", ["", "stop", "stop TERM", "stop TERM x 1", "stop $(id) 5 1", "\xff\0 TERM 5", "a b c d"]
)
def test_a_request_that_cannot_be_read_is_a_stop(attempt: Attempt, text: str) -> None:
    order = attempt.order("sh", "-c", HEARS, environment={"STAYS": "1"}, stop_grace_seconds=0)
    process = attempt.start(attempt.submit(order))
    attempt.await_file("pid")
    (attempt.directory / "stop").write_text(text or "\n")
    process.send_signal(NUDGE)
    assert attempt.end(process)[0] == -signal.SIGKILL


def test_a_stop_before_the_start_runs_nothing(attempt: Attempt) -> None:
    ask(attempt, "stop", "TERM", 10)
    assert attempt.run("sh", "-c", "echo ran") == 75
    end = attempt.records().exits[0]
    assert (end.ran, end.reason) == (False, "stopped_before_start")
    assert end.stop_seen is not None
    assert attempt.records().started == {}


def test_the_warning_before_the_limit_is_no_stop(attempt: Attempt) -> None:
    order = attempt.order("sh", "-c", HEARS, warning_signal="INT")
    process = attempt.start(attempt.submit(order))
    attempt.await_file("pid")
    process.send_signal(WARNING)
    wait_until(hears(attempt, "INT"), "the warning")
    assert attempt.records().stop_seen == {}
    process.terminate()
    assert attempt.end(process)[0] == 9


def test_a_warning_that_was_not_ordered_is_not_passed_on(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", HEARS)))
    attempt.await_file("pid")
    process.send_signal(WARNING)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    process.terminate()
    assert attempt.end(process)[0] == 9
    assert heard(attempt) == ["TERM recorded"]


def test_a_command_that_was_stopped_is_waited_for_and_continues_with_the_runner(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", "echo $$ >pid; kill -STOP $$; exit 7")))
    pid = int(attempt.await_file("pid"))
    wait_until(lambda: "State:\tT" in _status(pid), "it is stopped")
    assert process.poll() is None
    process.send_signal(signal.SIGCONT)
    assert attempt.end(process)[0] == 7
    assert attempt.records().exits[0].stop_seen is None


def test_a_command_that_was_stopped_hears_of_a_stop(attempt: Attempt) -> None:
    command = "trap 'exit 8' TERM; echo $$ >pid; kill -STOP $$; while :; do sleep 1; done"
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", command)))
    pid = int(attempt.await_file("pid"))
    wait_until(lambda: "State:\tT" in _status(pid), "it is stopped")
    process.terminate()
    assert attempt.end(process)[0] == 8


@pytest.mark.parametrize("ends", ["exit 143", "exit 127", "exit 0", "kill -9 $$"])
def test_a_storm_of_signals_changes_no_end(attempt: Attempt, ends: str) -> None:
    command = f"trap '' TERM; echo $$ >pid; until [ -e over ]; do sleep 0.02; done; {ends}"
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", command)))
    attempt.await_file("pid")
    for number in range(60):
        process.send_signal((signal.SIGCONT, NUDGE, signal.SIGTERM, WARNING)[number % 4])
        if number == 40:
            (attempt.work / "over").touch()
    attempt.end(process)
    end = attempt.records().exits[0]
    if attempt.shell[0] == "bash" and end.reason == "supervisor_failed":
        return  # bash can lose the end of a child in it, and says so
    assert (end.code, end.signal) == ((None, 9) if "kill" in ends else (int(ends.split()[1]), None))


def _status(pid: int) -> str:
    with open(f"/proc/{pid}/status") as file:
        return file.read()
