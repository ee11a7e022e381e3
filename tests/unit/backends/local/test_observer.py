"""What an observation shows, and what it never mistakes for an end or an absence."""

import os
import time
from pathlib import Path

import pytest

from shared.backends.local import layout, locks, processes
from shared.backends.local.files import read_record
from shared.backends.local.observer import LocalState, Observation, Observer, Seen, look
from tests.unit.backends.local.builders import USUAL, Records, dead, me

JOB = "d.j1.a1.t"


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path / "local")


def only(observation: Observation) -> Seen:
    assert observation.complete
    (seen,) = observation.submissions
    return seen


def observe(records: Records) -> Seen:
    return only(Observer(records.root).observe())


def test_follows_a_submission_from_claim_to_end(records: Records) -> None:
    observer = Observer(records.root)
    records.write(JOB, layout.SPEC)
    held = os.open(records.path(JOB, layout.SPEC), os.O_RDWR)
    assert locks.take(held)
    assert only(observer.observe()).state is LocalState.ACCEPTED
    records.write(JOB, layout.CLAIM)
    assert only(observer.observe()).state is LocalState.CLAIMED
    records.write(JOB, layout.STARTED)
    assert only(observer.observe()).state is LocalState.RUNNING
    records.write(JOB, layout.STOP_SEEN)
    assert only(observer.observe()).stop_seen_at is not None
    records.write(JOB, layout.EXIT)
    seen = only(observer.observe())
    assert seen.state is LocalState.EXITED
    assert (seen.job, seen.attempt, seen.deployment) == ("j1", 1, "d")
    assert seen.exit is not None
    assert seen.exit.duration_ms == 2500
    os.close(held)


@pytest.mark.parametrize(
    "supervisor",
    [
        pytest.param(lambda: me() | {"boot_id": "00000000-0000-0000-0000-000000000000"}, id="the machine was rebooted"),
        pytest.param(lambda: me() | {"start_ticks": 1}, id="another process has got the pid"),
        pytest.param(dead, id="it has ended"),
        pytest.param(lambda: me() | {"pid": 2**22 + 5}, id="no such pid"),
    ],
)
def test_sees_that_a_recorded_supervisor_is_gone_though(records: Records, supervisor: object) -> None:
    assert callable(supervisor)
    identity = supervisor()
    records.write(JOB, layout.CLAIM, supervisor=identity)
    records.write(JOB, layout.STARTED, supervisor=identity)
    assert observe(records).state is LocalState.GONE


def test_takes_a_zombie_for_dead(records: Records) -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    identity = processes.identity(pid)
    records.write(JOB, layout.CLAIM, supervisor=identity)
    assert observe(records).state is LocalState.CLAIMED
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert observe(records).state is LocalState.GONE
    os.waitpid(pid, 0)


def test_an_intent_whose_process_never_came_is_gone_without_a_claim(records: Records) -> None:
    records.write(JOB, layout.SPEC)
    seen = observe(records)
    assert (seen.state, seen.claim) == (LocalState.GONE, None)


def test_a_whole_record_of_the_end_counts_whatever_its_supervisor_does(records: Records) -> None:
    records.write(JOB, layout.CLAIM, supervisor=dead())
    records.write(JOB, layout.EXIT)
    assert observe(records).state is LocalState.EXITED


@pytest.mark.parametrize("kind", [layout.CLAIM, layout.STARTED, layout.EXIT])
def test_a_record_torn_at_any_byte_is_no_record(records: Records, kind: str) -> None:
    records.write(JOB, layout.SPEC)
    held = os.open(records.path(JOB, layout.SPEC), os.O_RDWR)
    locks.take(held)
    records.write(JOB, kind)
    length = records.path(JOB, kind).stat().st_size
    for keep in range(length):
        records.tear(JOB, kind, keep)
        assert observe(records).state is LocalState.ACCEPTED, keep
    os.close(held)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"submission": "d.other.a1.t"}, id="about another submission"),
        pytest.param({"code": "0"}, id="code is text"),
        pytest.param({"code": True}, id="code is a truth value"),
        pytest.param({"code": None}, id="neither code nor signal"),
        pytest.param({"signal": 9}, id="code and signal"),
        pytest.param({"ended_at": "2026-11-30T09:00:04"}, id="no time zone"),
        pytest.param({"ended_at": None}, id="no end"),
        pytest.param({"started_at": None}, id="ran and never started"),
        pytest.param({"ran": None}, id="does not say whether it ran"),
        pytest.param({"ran": False}, id="exit 0 of what never ran"),
        pytest.param({"duration_ms": -1}, id="negative duration"),
        pytest.param({"attempt": "1"}, id="attempt is text"),
    ],
)
def test_an_exit_record_that_does_not_add_up_is_no_end(records: Records, change: dict[str, object]) -> None:
    records.write(JOB, layout.CLAIM)
    records.write(JOB, layout.STARTED)
    records.write(JOB, layout.EXIT, **change)
    assert observe(records).state is LocalState.RUNNING


@pytest.mark.parametrize("content", [b"", b"null", b"[]", b"\x00" * 300, b"{" * 100_000, b'"x"', b"\xff\xfe{}"])
def test_whatever_a_file_holds_no_observation_fails(records: Records, content: bytes) -> None:
    for kind in layout.RECORD_KINDS:
        records.path(JOB, kind).write_bytes(content)
    observation = Observer(records.root).observe()
    assert observation.complete
    assert observation.submissions == ()


def test_a_fifo_a_link_and_a_directory_are_no_records(records: Records) -> None:
    records.write(JOB, layout.CLAIM)
    os.mkfifo(records.path(JOB, layout.EXIT))
    records.path(JOB, layout.STARTED).mkdir()
    records.write(JOB, layout.STOP_SEEN)
    records.path(JOB, layout.STOP_SEEN).rename(records.root / "elsewhere.json")
    records.path(JOB, layout.STOP_SEEN).symlink_to(records.root / "elsewhere.json")
    seen = observe(records)
    assert (seen.state, seen.stop_seen_at) == (LocalState.CLAIMED, None)


def test_foreign_files_are_passed_over(records: Records) -> None:
    records.write(JOB, layout.EXIT)
    for name in (
        ".hidden.exit.json",
        "README",
        "exit.json",
        "not-ours.exit.json",
        "x.y.json",
        "d.j1.a1.t.exit.json.bak",
    ):
        (records.root / layout.OPEN / name).write_text("{}")
    assert observe(records).state is LocalState.EXITED


def test_a_root_that_cannot_be_read_is_no_absence(records: Records) -> None:
    observer = Observer(records.root)
    records.write(JOB, layout.EXIT)
    observer.observe()
    (records.root / layout.OPEN).rename(records.root / "moved")
    observation = observer.observe()
    assert not observation.complete
    assert observation.problem is not None
    assert [seen.submission for seen in observation.submissions] == [JOB], "what was known stays"
    (records.root / "moved").rename(records.root / layout.OPEN)
    assert observer.observe().complete


def test_an_end_recorded_between_listing_and_death_is_an_end(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor writes its record and dies after the directory was read and before its pid is looked at."""
    records.write(JOB, layout.CLAIM)
    records.write(JOB, layout.STARTED)
    observer = Observer(records.root)
    assert only(observer.observe()).state is LocalState.RUNNING

    def die(_who: object, _boot: str) -> bool:
        records.write(JOB, layout.EXIT)
        return False

    monkeypatch.setattr(processes, "is_alive", die)
    observer._looked_at = -1000.0  # the second between two looks has passed
    assert only(observer.observe()).state is LocalState.EXITED


@pytest.fixture
def released_while_read(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ended one, whose supervisor lives on for its next, is released after its claim is read and before its end."""
    for kind in (layout.SPEC, layout.STARTED, layout.CLAIM, layout.EXIT):
        records.write(JOB, kind)

    def read(path: str) -> dict[str, object] | None:
        if path == str(records.path(JOB, layout.EXIT)):
            for kind in layout.RECORD_KINDS:
                records.path(JOB, kind).unlink(missing_ok=True)
        return read_record(path)

    monkeypatch.setattr("shared.backends.local.observer.read_record", read)


@pytest.mark.usefixtures("released_while_read")
def test_who_looks_while_it_is_released_takes_no_ended_one_for_running(records: Records) -> None:
    assert look(str(records.root), JOB) is None


@pytest.mark.usefixtures("released_while_read")
def test_an_observation_while_it_is_released_shows_no_ended_one_as_running(records: Records) -> None:
    assert Observer(records.root).observe().submissions == ()


def test_a_released_submission_is_no_longer_shown(records: Records) -> None:
    observer = Observer(records.root)
    records.write(JOB, layout.EXIT)
    assert only(observer.observe()).state is LocalState.EXITED
    records.path(JOB, layout.EXIT).unlink()
    assert observer.observe().submissions == ()


def test_sees_every_change_however_quickly_they_follow(records: Records) -> None:
    observer = Observer(records.root)
    for index in range(300):
        records.write(f"d.j{index}.a1.t", layout.EXIT)
        assert len(observer.observe().submissions) == index + 1


def test_sees_a_change_within_one_tick_of_the_file_systems_clock(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = records.root / layout.OPEN
    stamp = directory.stat().st_mtime_ns
    monkeypatch.setattr(time, "time_ns", lambda: stamp + 1)
    observer = Observer(records.root)
    assert observer.observe().submissions == ()
    records.write(JOB, layout.EXIT)
    os.utime(directory, ns=(stamp, stamp))
    assert only(observer.observe()).state is LocalState.EXITED


def test_reads_nothing_again_while_nothing_changes(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(200):
        records.write(f"d.j{index}.a1.t", layout.EXIT)
    os.utime(records.root / layout.OPEN, ns=(0, time.time_ns() - 10**9))  # as if written a while ago
    observer = Observer(records.root)
    first = observer.observe()
    monkeypatch.setattr(os, "listdir", lambda _path: pytest.fail("listed again"))
    assert observer.observe() is first


def test_a_stop_request_makes_nothing_be_read_again(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    records.write(JOB, layout.EXIT)
    records.path(JOB, layout.STOP).write_text("{}")
    observer = Observer(records.root)
    assert only(observer.observe()).state is LocalState.EXITED
    monkeypatch.setattr("shared.backends.local.observer.read_record", lambda _path: pytest.fail("read again"))
    assert only(observer.observe()).state is LocalState.EXITED


def test_usual_records_are_whole() -> None:
    assert set(USUAL) == set(layout.RECORD_KINDS)
