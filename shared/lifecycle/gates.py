"""The gates that a record itself shows to be closed: named at once, before the gatekeeper has looked. Pure."""

from datetime import datetime

from shared.lifecycle.facts import Gate
from shared.lifecycle.record import HoldMark, JobRecord


def hold_gate(job: str, mark: HoldMark) -> Gate:
    """Closed by a person until that is taken back."""
    lifted_by = "an admin" if mark.by_admin else f"{mark.actor} or an admin"
    return Gate(name="hold", reason=f"held by {mark.actor}: {mark.reason}", scope=f"job {job}", lifted_by=lifted_by)


def upstream_gate(step: str) -> Gate:
    """Closed until the steps before `step` have succeeded."""
    reason = f"step {step} waits for the steps before it to succeed"
    return Gate(name="upstream", reason=reason, scope="pipeline", lifted_by="the steps before it")


def cooldown_gate(job: str, attempt: int, until: datetime) -> Gate:
    """Closed for a while after the attempt before failed."""
    reason = f"attempt {attempt - 1} failed; attempt {attempt} may start from {until:%Y-%m-%d %H:%M:%S} UTC on"
    return Gate(name="cooldown", reason=reason, scope=f"job {job}", lifted_by="time", opens_at=until)


def own_gates(record: JobRecord, now: datetime) -> tuple[Gate, ...]:
    """Those closed for a QUEUED record at `now`, in the order in which gates are named."""
    closed = []
    if record.hold is not None:
        closed.append(hold_gate(record.id, record.hold))
    if record.pipeline is not None and not record.pipeline.upstream_done:
        closed.append(upstream_gate(record.pipeline.step))
    until = record.current.cooldown_until
    if until is not None and until > now:
        closed.append(cooldown_gate(record.id, record.attempt, until))
    return tuple(closed)


def at_own_gates(record: JobRecord, now: datetime) -> JobRecord:
    """The record at the gates that it shows itself; without one it waits for the gatekeeper to look at it."""
    closed = own_gates(record, now)
    return record.model_copy(update={"gate": closed[0] if closed else None, "closed_gates": closed})


def at_gates_anew(record: JobRecord, now: datetime) -> JobRecord:
    """The same after a hold was put on it or taken away; what the gatekeeper has said of other gates is still so."""
    others = tuple(gate for gate in record.closed_gates if gate.name not in ("hold", "upstream", "cooldown"))
    closed = (*own_gates(record, now), *others)
    return record.model_copy(update={"gate": closed[0] if closed else None, "closed_gates": closed})
