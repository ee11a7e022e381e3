"""What api decides without any store: reading facts, one change per job, replay."""

from datetime import UTC, datetime

import orjson
import pytest

from services.api.domain import BadFact, Change, Reported, read_fact, replay, reset_of, take_command, take_facts
from shared.contracts.ids import new_id
from shared.lifecycle.advance import create
from shared.lifecycle.inputs import Hold, Release, Reset
from shared.lifecycle.record import JobRecord, Resources

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GATE = {"name": "capacity", "reason": "full", "scope": "cluster local", "lifted_by": "time"}


def _a_job() -> JobRecord:
    return create(
        id=new_id("j", NOW),
        tenant="acme",
        user="rin",
        name="n",
        spec_digest="sha256:" + "a" * 64,
        resources=Resources(),
        has_outputs=False,
        now=NOW,
    )


def _fact(record: JobRecord, kind: str, n: int, **fields: object) -> Reported:
    base = {"kind": kind, "job": record.id, "tenant": record.tenant, "attempt": 1, "source": "t", "version": {"n": n}}
    body = orjson.dumps({**base, "at": NOW, **fields})
    return read_fact(f"facts.v1.gatekeeper.{kind}", body)


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("facts.v1.gatekeeper.admitted", b"{"),
        ("facts.v1.gatekeeper.admitted", b"{}"),
        ("facts.v1.gatekeeper.never_heard_of", b'{"kind": "never_heard_of"}'),
        ("facts.v1.launcher.admitted", None),
        ("facts.v1.stranger.admitted", None),
    ],
    ids=["no JSON", "no fact", "an unknown kind", "not the launcher's to say", "an unknown sender"],
)
def test_refuses_what_is_no_fact_of_its_sender(subject: str, body: bytes | None) -> None:
    good = _fact(_a_job(), "admitted", 1, admission=1).json.encode()
    with pytest.raises(BadFact, match=subject.split(".")[-1]):
        read_fact(subject, good if body is None else body)


def test_refuses_a_job_id_that_is_none() -> None:
    record = _a_job().model_copy(update={"id": "../../etc"})
    with pytest.raises(BadFact, match="no job's id"):
        _fact(record, "admitted", 1, admission=1)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a\0b", "a\ufffdb"),
        ("\0\0", "\ufffd\ufffd"),
        ("\\u0000", "\\u0000"),
        ("\\\0", "\\\ufffd"),
        ("\\\\u0000", "\\\\u0000"),
    ],
    ids=["one", "two", "an escaped backslash", "a backslash before one", "two backslashes"],
)
def test_replaces_nul_characters_and_nothing_else(given: str, kept: str) -> None:
    reported = _fact(_a_job(), "held", 1, gates=[GATE | {"reason": given}])
    assert orjson.loads(reported.json)["gates"][0]["reason"] == kept


def test_keeps_fields_that_it_does_not_know_for_the_log() -> None:
    record = _a_job()
    change, _ = take_facts(record, [_fact(record, "admitted", 1, admission=1, of_a_later_version=True)], NOW)
    assert change is not None
    assert orjson.loads(change.inputs)[0]["of_a_later_version"] is True


def test_does_not_log_what_was_ignored() -> None:
    record = _a_job()
    admitted = _fact(record, "admitted", 1, admission=1)
    change, outcomes = take_facts(record, [admitted, admitted], NOW)
    assert change is not None
    assert [outcome.what for outcome in outcomes] == ["applied", "ignored"]
    assert len(orjson.loads(change.inputs)) == 1
    assert take_facts(change.record, [admitted], NOW)[0] is None


def test_replays_commands_and_a_refused_admission() -> None:
    first = _a_job()
    held, _ = take_command(first, Hold(actor="rin", at=NOW, reason="wait"), NOW)
    assert held is not None
    refused, outcomes = take_facts(held.record, [_fact(first, "admitted", 1, admission=1)], NOW)
    assert refused is not None
    assert outcomes[0].what == "refused"
    released, _ = take_command(refused.record, Release(actor="rin", at=NOW), NOW)
    assert released is not None
    assert _replayed(first, held, refused, released) == released.record


def test_replays_a_restore_and_what_came_before_its_reset() -> None:
    """A command may come in the new epoch before the job is told again."""
    first = _a_job()
    restored = first.model_copy(update={"epoch": 2})
    held, _ = take_command(restored, Hold(actor="rin", at=NOW, reason="wait"), NOW)
    assert held is not None
    told = reset_of(held.record, Reset(epoch=2, backup_at=NOW), NOW)
    again = reset_of(told.record, Reset(epoch=3), NOW)
    assert (again.event, again.record.epoch, again.record.seq) == ("reset", 3, 4)
    assert _replayed(first, held) == held.record
    assert _replayed(first, held, told, again) == again.record


def _replayed(first: JobRecord, *changes: Change) -> JobRecord:
    return replay(first, [(orjson.loads(change.inputs), change.at, change.record.epoch) for change in changes])
