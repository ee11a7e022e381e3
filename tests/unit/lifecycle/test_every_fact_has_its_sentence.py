"""What was seen is told in words, whatever kind of fact it is."""

from typing import Any, get_args

import pytest

from shared.lifecycle.facts import FACT, AnyFact
from shared.lifecycle.seen import words
from tests.unit.lifecycle.jobs import at

JOB = "j" + "0" * 26
NOON = at(0)
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


def a_fact(kind: str, **fields: Any) -> AnyFact:
    segment = {"submission": f"tidegate.{JOB}.a1.s1", "restart": 0, "created_at": NOON}
    known = {"source": "watcher/local", "version": {"n": 1}, "segment": segment, "at": NOON}
    return FACT.validate_python(known | {"kind": kind, "job": JOB, "tenant": "acme", "attempt": 1} | fields)


def test_every_kind_of_fact_is_known_here() -> None:
    assert set(FIELDS) == {fact.model_fields["kind"].default for fact in get_args(AnyFact)}


@pytest.mark.parametrize("kind", list(FIELDS))
def test_every_fact_is_a_sentence_without_names_of_code(kind: str) -> None:
    said = words(a_fact(kind, **FIELDS[kind]))
    assert said
    assert "_" not in said


def test_an_exit_says_how_it_was_seen() -> None:
    said = words(
        a_fact("exited", code=0, ended_at=NOON, raw_state="x", self_reported=True, estimated=True, message="m")
    )
    assert said == "exited with code 0, as its own runner reported, time estimated: m"
    assert "signal 15" in words(a_fact("exited", **FIELDS["exited"]))
    assert "no exit code" in words(a_fact("exited", ended_at=NOON, raw_state="x"))


def test_missing_outputs_are_named() -> None:
    fact = a_fact("staging_sealed", staged=True, outcome="missing", missing=["a.txt", "b"])
    assert words(fact) == "declared outputs are missing: a.txt, b"


def test_one_is_one() -> None:
    assert words(a_fact("staging_sealed", **FIELDS["staging_sealed"])).endswith(": 1 file, 3 bytes")
