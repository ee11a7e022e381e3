"""Every kind of fact has its sentence, and lines of evidence are in the order of their times."""

from typing import Any, get_args

import pytest

from services.cli.evidence import clock, evidence_lines, what
from shared.lifecycle.facts import AnyFact
from tests.unit.cli.given import JOB, NOON, a_fact, at

FIELDS: dict[str, dict[str, Any]] = {
    "admitted": {"admission": 1},
    "held": {"gates": [{"name": "hold", "reason": "not now", "scope": "job", "lifted_by": "rin"}]},
    "policy_stop": {"policy": "budget", "reason": "spent"},
    "policy_pause": {"policy": "idle", "reason": "idle for 30 min"},
    "input_valid": {},
    "input_invalid": {"findings": [{"code": "x", "place": "train.py", "message": "there is no train.py"}]},
    "staged": {"directory": f"work/acme/{JOB}/a1/e1", "nothing_to_copy": True},
    "staging_failed": {"message": "the disk is full"},
    "staging_sealed": {"staged": True, "outcome": "verified", "files": 1, "size_bytes": 3},
    "recopied": {"recopy": 1, "outcome": "failed", "message": "gone"},
    "accepted": {"backend": "local", "cluster": "local", "ref": f"tidegate.{JOB}.a1.s1"},
    "launch_refused": {"message": "no such partition"},
    "launcher_sealed": {"ran": True},
    "gpus_freed": {},
    "seen_pending": {"raw_state": "PENDING", "raw_reason": "Priority"},
    "seen_running": {"started_at": NOON, "raw_state": "RUNNING"},
    "seen_idle": {"idle_since": NOON},
    "segment_requeued": {"ended_at": NOON, "raw_reason": "node failed"},
    "exited": {"signal": 15, "ended_at": NOON, "stop_recorded": True, "raw_state": "CANCELLED"},
    "lost": {"last_seen_at": NOON},
}


def test_every_kind_of_fact_is_known_here() -> None:
    assert set(FIELDS) == {fact.model_fields["kind"].default for fact in get_args(AnyFact)}


@pytest.mark.parametrize("kind", list(FIELDS))
def test_every_fact_is_a_sentence_without_names_of_code(kind: str) -> None:
    said = what(a_fact(kind, **FIELDS[kind]))
    assert said
    assert "_" not in said
    assert JOB not in said


def test_an_exit_says_how_it_was_seen() -> None:
    said = what(a_fact("exited", code=0, ended_at=NOON, raw_state="x", self_reported=True, estimated=True, message="m"))
    assert said.startswith("exited with code 0 at ")
    assert said.endswith(", as it reported itself, time estimated: m")
    assert "signal 15" in what(a_fact("exited", **FIELDS["exited"]))
    assert "no exit code" in what(a_fact("exited", ended_at=NOON, raw_state="x"))


def test_missing_outputs_are_named() -> None:
    fact = a_fact("staging_sealed", staged=True, outcome="missing", missing=["a.txt", "b"])
    assert what(fact) == "declared outputs are missing: a.txt, b"


def test_lines_are_in_the_order_of_their_times_with_who_saw_it() -> None:
    facts = [a_fact("gpus_freed", 9), a_fact("input_valid", 1), a_fact("accepted", 2, **FIELDS["accepted"])]
    lines = evidence_lines(facts, NOON.astimezone().date())
    assert [line.split("[/] ")[1] for line in lines] == [
        "inputs and command check out",
        "taken by local as tidegate.….a1.s1",
        "its GPUs are free",
    ]
    assert "launcher/launcher" in lines[1]


def test_another_day_is_named() -> None:
    day = NOON.astimezone().date()
    assert clock(NOON, day) == f"{NOON.astimezone():%H:%M:%S}"
    assert clock(at(2 * 86_400), day) == f"{at(2 * 86_400).astimezone():%m-%d %H:%M:%S}"
