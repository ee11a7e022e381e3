"""What a Slurm cluster shows becomes facts: never an end that is not in it, never a success that is not proven."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.watcher.slurm.blindness import Blind
from services.watcher.slurm.findings import findings
from services.watcher.slurm.sighting import Sighting, Witness
from shared.lifecycle.facts import FACT
from tests.unit.watcher.slurm.rows import JOB, NAME, accounted, at, queued, seen


def told(sighting: Sighting, blind: tuple[Blind, ...] = ()) -> list[tuple[str, Mapping[str, Any]]]:
    """Kind and fields of each finding, checked to be facts."""
    found = findings(sighting, blind)
    for finding in found:
        version = {"version": {"epoch": 1, "n": 1}, "at": at(0), "source": "watcher/hpc"}
        FACT.validate_python({"kind": finding.kind, "job": JOB, "attempt": 1, **finding.fact, **version})
    return [(finding.kind, finding.fact) for finding in found]


def the_end(sighting: Sighting, blind: tuple[Blind, ...] = ()) -> Mapping[str, Any]:
    """The fields of the only finding, an end."""
    [(kind, fields)] = told(sighting, blind)
    assert kind == "exited"
    return fields


@pytest.mark.parametrize(
    ("state", "status", "code", "signal", "reason"),
    [
        ("COMPLETED", "0:0", 0, None, None),
        ("FAILED", "3:0", 3, None, None),
        ("FAILED", "137:0", 137, None, None),
        ("FAILED", "0:9", None, 9, None),
        ("COMPLETED", "1:0", 1, None, None),
        ("COMPLETED", None, None, None, None),
        ("FAILED", "0:0", None, None, None),
        ("FAILED", "0:53", None, None, "configuration"),
        ("OUT_OF_MEMORY", "0:125", None, None, "out_of_memory"),
        ("FAILED", "0:125", None, None, "out_of_memory"),
        ("TIMEOUT", "0:15", None, None, "time_limit"),
        ("DEADLINE", "0:1", None, None, "time_limit"),
        ("CANCELLED", "0:15", None, None, "stopped_at_backend"),
        ("NODE_FAIL", "0:0", None, None, "node_lost"),
        ("PREEMPTED", "0:15", None, None, "preempted"),
        ("BOOT_FAIL", "0:0", None, None, "node_lost"),
    ],
)
def test_an_end_is_what_state_and_status_say_together(
    state: str, status: str | None, code: int | None, signal: int | None, reason: str | None
) -> None:
    end = the_end(seen(queued(state, exit=status, start=1, end=5)))
    assert (end["code"], end["signal"], end["reason"]) == (code, signal, reason)
    assert (end["started_at"], end["ended_at"]) == (at(1).isoformat(), at(5).isoformat())
    assert end["stop_recorded"] is (True if state == "CANCELLED" else None)


def test_a_job_in_its_epilog_runs_on() -> None:
    [(kind, fields)] = told(seen(queued("COMPLETED", exit="0:0", start=1, end=5, completing=True)))
    assert (kind, fields["raw_state"]) == ("seen_running", "COMPLETING")


def test_a_word_that_nobody_knows_says_nothing() -> None:
    assert told(seen(queued("SOMETHING_NEW", start=1))) == []


def test_who_cancelled_it_is_said() -> None:
    end = the_end(seen(None, (accounted("CANCELLED by 61007", by=61007, start=1, end=5),)))
    assert end["message"] == "cancelled by uid 61007"


def test_a_pending_job_says_what_it_waits_for() -> None:
    [(kind, fields)] = told(seen(queued("PENDING", "Resources")))
    assert kind == "seen_pending"
    assert fields["raw_reason"].startswith("Resources: it is next in line")


def test_a_short_job_that_left_the_queue_is_told_from_accounting() -> None:
    end = the_end(seen(None, (accounted("COMPLETED", start=2, end=4),)))
    assert (end["code"], end["started_at"], end["ended_at"]) == (0, at(2).isoformat(), at(4).isoformat())


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "REQUEUED", "COMPLETING", "REVOKED", "SUSPENDED"])
def test_accounting_alone_never_shows_a_job_alive_and_no_end_that_is_none(state: str) -> None:
    assert told(seen(None, (accounted(state, start=2),))) == []


def test_a_row_that_accounting_has_half_filled_is_no_end() -> None:
    assert told(seen(None, (accounted("NODE_FAIL", start=2, end=2, half_filled=True),))) == []


@pytest.mark.parametrize("order", [1, -1])
def test_a_requeued_run_is_the_state_and_the_one_before_is_a_segment(order: int) -> None:
    rows = (
        accounted("PREEMPTED", submitted=0, start=60, end=1800),
        accounted("COMPLETED", submitted=1800, start=7200, end=8400),
    )
    (first, segment), (second, end) = told(seen(None, rows[::order]))
    assert (first, segment["segment"]["restart"], segment["raw_reason"]) == ("segment_requeued", 0, "PREEMPTED")
    assert (segment["started_at"], segment["ended_at"]) == (at(60).isoformat(), at(1800).isoformat())
    assert (second, end["segment"]["restart"], end["code"], end["started_at"]) == ("exited", 1, 0, at(7200).isoformat())


def test_a_requeued_job_is_pending_again_whatever_accounting_says() -> None:
    rows = (accounted("REQUEUED", submitted=0, start=1, end=3),)
    (first, segment), (second, waits) = told(seen(queued("PENDING", "BeginTime", submitted=3, restarts=1), rows))
    assert (first, segment["ended_at"], segment["estimated"]) == ("segment_requeued", at(3).isoformat(), False)
    assert (second, waits["segment"]) == (
        "seen_pending",
        {"submission": NAME, "restart": 1, "created_at": at(3).isoformat()},
    )


def test_a_segment_that_accounting_does_not_show_yet_is_estimated() -> None:
    (_, segment), _ = told(seen(queued("PENDING", "BeginTime", submitted=3, restarts=1)))
    assert (segment["started_at"], segment["ended_at"], segment["estimated"]) == (None, at(3).isoformat(), True)


def test_each_segment_is_remembered_by_a_name_of_its_own() -> None:
    found = findings(seen(queued("RUNNING", submitted=3, start=4, restarts=1)))
    assert [finding.submission for finding in found] == [NAME, f"{NAME}+1"]


def test_suspended_time_is_told_apart() -> None:
    [(_, running)] = told(seen(queued("SUSPENDED", start=0, suspended_since=3600)))
    assert running["suspended_since"] == at(3600).isoformat()
    [(_, again)] = told(seen(queued("RUNNING", start=0, suspended=7200)))
    assert (again["suspended_since"], again["suspended_ms"]) == (None, 7_200_000)
    end = the_end(seen(queued("COMPLETED", exit="0:0", start=0, end=12_600, run_time=5400)))
    assert end["suspended_ms"] == 7_200_000
    assert the_end(seen(None, (accounted("CANCELLED", start=0, end=9, suspended=2),)))["suspended_ms"] == 2000


def test_the_worse_of_two_witnesses_counts_and_both_are_shown() -> None:
    sighting = seen(queued("COMPLETED", exit="0:0", start=1, end=5), (), (Witness(0, 3, None, at(5)),))
    end = the_end(sighting)
    assert end["code"] == 3
    assert end["message"] == "Slurm says COMPLETED 0:0, the runner recorded exit 3"
    sighting = seen(queued("FAILED", exit="0:9", start=1, end=5), (), (Witness(0, 0, None, at(5)),))
    end = the_end(sighting)
    assert (end["code"], end["signal"]) == (None, 9)
    assert end["message"] == "Slurm says FAILED 0:9, the runner recorded exit 0"


def test_a_failure_whose_code_accounting_lost_is_as_the_runner_recorded_it() -> None:
    end = the_end(seen(None, (accounted("FAILED", exit="0:0", start=1, end=5),), (Witness(0, 5, None, at(5)),)))
    assert end["code"] == 5


def test_a_stop_that_the_runner_saw_is_recorded() -> None:
    witness = Witness(0, 0, None, at(5), stop_seen_at=at(4))
    assert the_end(seen(queued("COMPLETED", exit="0:0", start=1, end=5), (), (witness,)))["stop_recorded"] is True


def test_an_end_that_a_controller_dates_to_its_return_is_as_the_runner_dates_it() -> None:
    sighting = seen(queued("COMPLETED", exit="0:0", start=1, end=600), (), (Witness(0, 0, None, at(30.5)),))
    end = the_end(sighting, (Blind(at(20), at(595)),))
    assert end["ended_at"] == at(30.5).isoformat()
    assert "570 s late" in end["message"]


def test_without_such_a_time_the_runner_of_the_tenant_shortens_nothing() -> None:
    sighting = seen(queued("COMPLETED", exit="0:0", start=1, end=600), (), (Witness(0, 0, None, at(30.5)),))
    assert the_end(sighting, (Blind(at(700), at(800)),))["ended_at"] == at(600).isoformat()
    before_its_start = seen(queued("COMPLETED", exit="0:0", start=100, end=600), (), (Witness(0, 0, None, at(30)),))
    assert the_end(before_its_start, (Blind(at(20), at(595)),))["ended_at"] == at(600).isoformat()


def test_a_blind_time_long_before_the_end_shortens_nothing() -> None:
    forged = seen(queued("COMPLETED", exit="0:0", start=1, end=36_000), (), (Witness(0, 0, None, at(30)),))
    assert the_end(forged, (Blind(at(18_000), at(18_010)),))["ended_at"] == at(36_000).isoformat()
    assert the_end(forged, (Blind(at(35_000), at(36_000)),))["ended_at"] == at(36_000).isoformat()
    assert the_end(forged, (Blind(at(20), at(40)),))["ended_at"] == at(36_000).isoformat()


def test_a_code_that_accounting_has_cut_is_as_the_runner_recorded_it() -> None:
    witness = Witness(0, 137, None, at(5))
    end = the_end(seen(None, (accounted("FAILED", exit="9:0", start=1, end=5),), (witness,)))
    assert (end["code"], end["message"]) == (137, None)
    end = the_end(seen(queued("FAILED", exit="9:0", start=1, end=5), (), (witness,)))
    assert (end["code"], end["message"]) == (9, "Slurm says FAILED 9:0, the runner recorded exit 137")


def test_who_was_cancelled_before_a_start_never_started() -> None:
    assert the_end(seen(queued("CANCELLED", start=3, end=3)))["started_at"] is None


def test_a_runner_that_was_not_to_start_tells_no_end_of_the_command() -> None:
    assert told(seen(queued("FAILED", exit="75:0", start=1, end=1))) == []
