"""The words of a scenario's lines, and the facts that services would send for them.

A line is `<step> <words>`. Some words stand for several facts that come together; `again` before a line sends the very
same fact once more.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from services.api.domain import Reported, read_fact
from shared.contracts.facts import encode_fact
from shared.contracts.subjects import FACT_KINDS
from shared.lifecycle.facts import FACT, AnyFact

_START: Final = datetime(2026, 11, 30, 9, tzinfo=UTC)
_SENDER: Final = {kind: service for service, kinds in FACT_KINDS.items() for kind in kinds}
_GATE: Final = {"scope": "tenant acme", "lifted_by": "a tenant admin"}

FACTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "is admitted": {"kind": "admitted", "admission": 1},
    "is held by quota": {"kind": "held", "gates": [_GATE | {"name": "quota.slots", "reason": "1 of 1 in use"}]},
    "is held upstream": {"kind": "held", "gates": [_GATE | {"name": "upstream", "reason": "waits for A"}]},
    "is checked": {"kind": "input_valid"},
    "is found invalid": {
        "kind": "input_invalid",
        "findings": [{"code": "script_not_found", "place": "command", "message": "there is no script x.py"}],
    },
    "is staged": {"kind": "staged", "directory": "work/acme/j/a1/e1", "nothing_to_copy": False},
    "is not staged": {"kind": "staging_sealed", "staged": False, "outcome": "none"},
    "is accepted": {"kind": "accepted", "backend": "local", "cluster": "local", "ref": "r1"},
    "is seen running": {"kind": "seen_running", "started_at": _START + timedelta(seconds=2), "raw_state": "running"},
    "exits 0": {"kind": "exited", "code": 0, "raw_state": "exited"},
    "exits 3": {"kind": "exited", "code": 3, "raw_state": "exited"},
    "dies of the stop": {"kind": "exited", "signal": 15, "stop_recorded": True, "raw_state": "exited"},
    "saves its state and exits 0": {"kind": "exited", "code": 0, "stop_recorded": True, "raw_state": "exited"},
    "is preempted": {"kind": "exited", "signal": 15, "reason": "preempted", "raw_state": "PREEMPTED"},
    "is refused": {"kind": "launch_refused", "reason": "configuration", "message": "there is no partition nosuch"},
    "is sealed unlaunched": {"kind": "launcher_sealed", "ran": False, "because": "launch_refused"},
    "brings nothing back": {"kind": "staging_sealed", "staged": True, "outcome": "none"},
    "frees its GPUs": {"kind": "gpus_freed"},
    "is sealed by the launcher": {"kind": "launcher_sealed", "ran": True},
    "has its outputs back": {"kind": "staging_sealed", "staged": True, "outcome": "verified", "files": 1},
    "misses its outputs": {"kind": "staging_sealed", "staged": True, "outcome": "missing", "missing": ["model/**"]},
}
TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "starts": ("is checked", "is staged", "is accepted", "is seen running"),
    "runs": ("is admitted", "starts"),
    "is let go": ("frees its GPUs", "is sealed by the launcher", "has its outputs back"),
    "succeeds": ("exits 0", "is let go"),
    "fails": ("exits 3", "is let go"),
    "is refused for good": ("is refused", "is sealed unlaunched", "brings nothing back"),
}
_WITH_SEGMENT: Final = frozenset({"accepted", "seen_running", "exited"})


@dataclass
class Told:
    """Makes the facts of one pipeline's steps, each with a version of its own."""

    jobs: Mapping[str, str]
    """Step to job."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Step to its attempt: how often it was queued."""
    _count: int = 0
    _last: dict[tuple[str, str], AnyFact] = field(default_factory=dict)

    def facts(self, line: str) -> Iterator[Reported]:
        """The facts that a line stands for, as `api` takes them from the stream."""
        again = line.startswith("again ")
        step, _, words = line.removeprefix("again ").partition(" ")
        for one in _single(words):
            if not again:
                self._last[step, one] = self._made(step, one)
            fact = self._last[step, one]
            wire = encode_fact(_SENDER[fact.kind], fact)
            yield read_fact(wire.subject, wire.body)

    def _made(self, step: str, words: str) -> AnyFact:
        self._count += 1
        at = _START + timedelta(seconds=self._count)
        base = {"job": self.jobs[step], "tenant": "acme", "version": {"n": self._count}, "at": at}
        fields = {"attempt": self.attempts[step], **FACTS[words]}
        if fields["kind"] in _WITH_SEGMENT:
            fields["segment"] = {"submission": "s1", "created_at": _START}
        if fields["kind"] == "exited":
            fields |= {"started_at": _START + timedelta(seconds=2), "ended_at": at}
        return FACT.validate_python({**base, "source": "a scenario", **fields})


def _single(words: str) -> Iterator[str]:
    if words not in TOGETHER:
        assert words in FACTS, f"{words!r} is no word of a scenario: known are {', '.join((*FACTS, *TOGETHER))}"
        yield words
    else:
        for one in TOGETHER[words]:
            yield from _single(one)
