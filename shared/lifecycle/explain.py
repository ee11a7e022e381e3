"""Why a job is where it is, what was seen of it, what comes next and who does it, and what it has cost. Pure: the
record and what may be asked of it are arguments, and so is time."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from pydantic import AwareDatetime

from shared.contracts.durations import in_words
from shared.lifecycle.actions import Action
from shared.lifecycle.duties import OWED_BY, Duty, duties, holdings
from shared.lifecycle.facts import Frozen, Gate
from shared.lifecycle.picture import Picture, picture
from shared.lifecycle.record import JobRecord, Workstation
from shared.lifecycle.seen import Seen, clock, evidence
from shared.lifecycle.states import ACTIVE, Desired, Phase, State
from shared.lifecycle.usage import gpu_milliseconds, remaining_seconds
from shared.lifecycle.verdict import who

_FOLLOWS: Final = ("resume", "retry", "stop", "delete")
"""Actions that are told of where nothing comes by itself."""
STOP_GRACE_SECONDS: Final = 10
CHECKPOINT_GRACE_SECONDS: Final = 60
"""From the signal to SIGKILL, at a stop or the time limit and at a pause, where neither job nor deployment says."""


class Next(Frozen):
    """What comes next; `who` does it or has to, `at` is when, where that is known."""

    what: str
    who: str | None = None
    at: AwareDatetime | None = None


class Cost(Frozen):
    """GPU time over all attempts in decimal seconds. `estimated`: not every end was seen."""

    gpu_seconds: str
    not_billable_gpu_seconds: str
    estimated: bool


class Explanation(Frozen):
    """What `GET /v1/jobs/{id}/explain` returns."""

    job: str
    name: str
    state: State
    why: str
    evidence: tuple[Seen, ...]
    next: Next
    cost: Cost


def explain(
    record: JobRecord, actions: Mapping[str, Action], now: datetime, *, gates: Sequence[Gate] = ()
) -> Explanation:
    """The whole answer. `gates` are those that are closed now, where the gatekeeper says so; else the record's, but for
    those whose time has come: the gatekeeper has to look at them."""
    first = next((gate for gate in gates or record.closed_gates if gate.opens_at is None or gate.opens_at > now), None)
    seen = picture(record.current)
    return Explanation(
        job=record.id,
        name=record.name,
        state=record.state,
        why=_why(record, seen, first),
        evidence=tuple(evidence(record)),
        next=_next(record, seen, first, actions, now),
        cost=_cost(record, now),
    )


def _why(record: JobRecord, seen: Picture, gate: Gate | None) -> str:
    if record.state is State.QUEUED:
        before = f" ({record.message})" if record.message else ""
        return f"{_held(gate)}{before}"
    if record.state in ACTIVE:
        wish = "" if record.desired_state is Desired.RUN else f"{_wished(record)}; "
        return wish + _active(record, seen)
    said = record.message or "how it ended is not known"
    stage = "" if record.failed_stage is None else f"stage {record.failed_stage.replace('_', ' ')} failed: "
    again = "; its outputs are being copied again" if record.recopy is not None else ""
    return f"{stage}{said}{again}"


def _held(gate: Gate | None) -> str:
    if gate is None:
        return "it waits for the gatekeeper to look at it"
    return gate.reason if gate.name == "hold" else f"the gate {gate.name} is closed: {gate.reason}"


def _wished(record: JobRecord) -> str:
    asked = "a stop" if record.desired_state is Desired.STOPPED else "a pause"
    return f"{asked} was asked for {who(record.wish) or 'by nobody known'}"


def _active(record: JobRecord, seen: Picture) -> str:
    if seen.exited is not None and seen.reached_running:
        ended = f"its command has ended at {clock(seen.exited.ended_at)}"
        return (
            f"{ended}, and {'the cluster is being released' if seen.stager_voted else 'its outputs are looked after'}"
        )
    if seen.lost is not None:
        last = "" if seen.lost.last_seen_at is None else f" since {clock(seen.lost.last_seen_at)}"
        return f"it is gone from the backend{last}, and nobody saw its end"
    if _out_of_sight(seen):
        since = "" if seen.running is None else f" since {clock(seen.running.at)}"
        return f"it was not seen{since}, nothing of it runs any more, and it may be lost: nobody saw its end yet"
    if record.phase is Phase.SUSPENDED_BY_BACKEND:
        return "the backend has suspended it, and keeps its GPUs"
    if record.state is State.RUNNING:
        since = f" since {clock(seen.running.started_at)}" if seen.running is not None else ""
        return f"its command runs{since}"
    if record.state is State.PENDING:
        return _pending(seen)
    if seen.input_invalid is not None:
        return f"its input was refused: {seen.input_invalid.findings[0].message}"
    if seen.staging_failed is not None:
        return f"its inputs could not be staged in: {seen.staging_failed.message}"
    if seen.refused is not None:
        return f"the backend refused it: {seen.refused.message}"
    if seen.staged is not None:
        return "its inputs are staged in, and it is being handed to the backend"
    return (
        "its inputs are being staged in" if seen.input_valid is not None else "its inputs and command are being checked"
    )


def _out_of_sight(seen: Picture) -> bool:
    """The launcher found that nothing of it runs, and the watcher has not said yet how it ended."""
    return seen.launcher_sealed is not None and seen.ran and not seen.end_known


def _pending(seen: Picture) -> str:
    if seen.requeued is not None:
        return f"the backend has requeued it: {seen.requeued.raw_reason}"
    if seen.pending is not None:
        return f"the backend has not started it: {seen.pending.raw_reason or seen.pending.raw_state}"
    return "the backend has it, and has not started it"


def _next(record: JobRecord, seen: Picture, gate: Gate | None, actions: Mapping[str, Action], now: datetime) -> Next:
    if record.state is State.QUEUED:
        return _at_the_gate(gate)
    if record.state in ACTIVE:
        return _of_services(record, seen, now)
    if record.recopy is not None:
        return Next(what="its outputs are copied again, and then it has succeeded or says why not", who="the stager")
    if holdings(record)[0]:
        return Next(what="its GPUs are freed", who="the launcher")
    begins = "nothing by itself: it is paused" if record.state is State.PAUSED else "nothing: it has ended"
    can = [name for name in _FOLLOWS if name in actions and actions[name].allowed]
    return Next(what=f"{begins}; you can {_or(can)} it" if can else begins)


def _or(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _at_the_gate(gate: Gate | None) -> Next:
    if gate is None:
        return Next(what="it is let through, or says which gate holds it", who="the gatekeeper")
    once = "it is released" if gate.name == "hold" else f"the gate {gate.name} is open"
    who = None if gate.name == "cooldown" else gate.lifted_by
    return Next(what=f"it goes on once {once}", who=who, at=gate.opens_at)


_OWED: Final[Mapping[Duty, str]] = {
    Duty.STAGE_IN: "its inputs are checked and staged in",
    Duty.SEAL_STAGING: "staging lets go of it",
    Duty.COPY_BACK: "its outputs are copied back",
    Duty.LAUNCH: "it is handed to the backend",
    Duty.STOP: "its command is asked to end",
    Duty.SEAL_LAUNCH: "the cluster is released",
    Duty.OBSERVE: "the backend is asked about it",
}
_FIRST: Final = tuple(_OWED)
"""Of several that are owed the one to tell of, in this order."""


def _of_services(record: JobRecord, seen: Picture, now: datetime) -> Next:
    owed = sorted((duty for duty in duties(record) if duty in _OWED), key=_FIRST.index)
    duty = owed[0] if owed else None
    if duty is Duty.STOP:
        return _asked_to_end(record, seen)
    if duty is None or duty is Duty.OBSERVE:
        return _of_the_command(record, seen, now)
    becomes = {Desired.STOPPED: ", and then it is stopped", Desired.PAUSED: ", and then it is paused"}
    return Next(what=_OWED[duty] + becomes.get(record.desired_state, ""), who=f"the {OWED_BY[duty]}")


def _asked_to_end(record: JobRecord, seen: Picture) -> Next:
    wish, signals = record.wish, record.signals
    paused = record.desired_state is Desired.PAUSED
    becomes = "paused" if paused else "stopped"
    if not seen.reached_running:
        return Next(what=f"it is taken back from the backend, and then it is {becomes}", who="the launcher")
    if wish is not None and wish.force:
        return Next(what=f"its command is killed, and then it is {becomes}", who="the launcher")
    signal = signals.checkpoint_signal if paused else "TERM"
    given = wish.grace_seconds if wish is not None and wish.grace_seconds is not None else None
    grace = given if given is not None else signals.checkpoint_grace_seconds if paused else signals.stop_grace_seconds
    at = None if wish is None or grace is None else wish.at + timedelta(seconds=grace)
    return Next(
        what=f"its command ends on SIG{signal} or is killed, its outputs are copied back, and then it is {becomes}",
        who="the launcher",
        at=at,
    )


def _of_the_command(record: JobRecord, seen: Picture, now: datetime) -> Next:
    if _out_of_sight(seen):
        return Next(what="its end is found, or it is lost", who="the watcher")
    if record.state is not State.RUNNING:
        return Next(what="it starts", who=record.backend.cluster or "the backend")
    if record.phase is Phase.SUSPENDED_BY_BACKEND:
        return Next(what="it goes on", who=record.backend.cluster or "the backend")
    if seen.exited is not None or seen.lost is not None:
        return Next(what="its outcome is written", who="the api")
    ends_at = _limit_ends_at(record)
    idle_at = None if record.workstation is None else record.workstation.suspends_at
    if idle_at is not None and (ends_at is None or idle_at < ends_at):
        return Next(
            what="it is suspended for being idle, unless somebody uses or snoozes it", who="the watcher", at=idle_at
        )
    rule = idle_rule(record.workstation, now)
    idle = f"; {rule}" if rule else ""
    if ends_at is not None:
        return _at_the_limit(record, ends_at, now, idle)
    return Next(what=f"its command ends{idle}", who="the command")


def _at_the_limit(record: JobRecord, ends_at: datetime, now: datetime, idle: str) -> Next:
    """At the limit the command is asked to end, and has its grace."""
    given = record.signals.stop_grace_seconds
    if ends_at > now:
        killed = f"it is killed {grace_in_words(given)} later"
        return Next(
            what=f"its command ends, or is sent SIGTERM at its time limit: {killed}{idle}",
            who="the command",
            at=ends_at,
        )
    due = f"its command ends: SIGTERM was due at its time limit, {clock(ends_at)}, and it is killed"
    if given is None:
        return Next(what=f"{due} {grace_in_words(given)} later", who="the command")
    return Next(what=f"{due} {grace_in_words(given)} later", who="the command", at=ends_at + timedelta(seconds=given))


def grace_in_words(given: int | None) -> str:
    """What lies between SIGTERM and SIGKILL, in words."""
    return f"{STOP_GRACE_SECONDS} s (by default)" if given is None else in_words(given)


def idle_rule(mark: Workstation | None, now: datetime) -> str | None:
    """What becomes of a workstation without use; None of a batch job."""
    if mark is None:
        return None
    if mark.idle_suspend_seconds is None:
        return "nothing suspends it for being idle"
    until = mark.snoozed_until
    put_off = f", not before {clock(until)}" if until is not None and until > now else ""
    return f"it is suspended after {in_words(mark.idle_suspend_seconds)} without use{put_off}"


def _limit_ends_at(record: JobRecord) -> datetime | None:
    """When the time limit ends the segment that runs."""
    left = remaining_seconds(record)
    running = [segment for segment in record.current.segments if segment.started_at and segment.ended_at is None]
    if left is None or not running or running[-1].started_at is None:
        return None
    return running[-1].started_at + timedelta(seconds=left)


def _cost(record: JobRecord, now: datetime) -> Cost:
    uncertain = record.state in ACTIVE and _out_of_sight(picture(record.current))
    folded = [record.earlier, *(attempt.folded for attempt in record.attempts)]
    kept = [segment for attempt in record.attempts for segment in attempt.segments]
    unbilled = sum(one.not_billable_gpu_milliseconds for one in folded if one is not None)
    unbilled += sum(segment.gpu_milliseconds or 0 for segment in kept if not segment.billable)
    return Cost(
        gpu_seconds=seconds(gpu_milliseconds(record, now)),
        not_billable_gpu_seconds=seconds(unbilled),
        estimated=uncertain or any(one.estimated for one in (*kept, *folded) if one is not None),
    )


def seconds(milliseconds: int) -> str:
    """Integer milliseconds as decimal seconds: `1.250`."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03d}"
