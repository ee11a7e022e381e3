"""The steps of `advance` that commands take, from a person or from a policy."""

from datetime import datetime

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.derive import derive
from shared.lifecycle.duties import holdings
from shared.lifecycle.finish import next_attempt, settle
from shared.lifecycle.outcome import StepResult, applied, ignored, refused
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import HoldMark, JobRecord, RecopyMark, Wish
from shared.lifecycle.stages import closed_stages
from shared.lifecycle.states import Desired, Phase, State
from shared.lifecycle.verdict import hint, sentence

AnyStop = i.Stop | f.PolicyStop
AnyPause = i.Pause | f.PolicyPause


def wish_of(item: AnyStop | AnyPause) -> Wish:
    """Who asks, and how."""
    if isinstance(item, f.PolicyStop | f.PolicyPause):
        return Wish(actor=f"policy {item.policy} ({item.reason})", at=item.at, by_policy=True)
    if isinstance(item, i.Stop):
        return Wish(actor=item.actor, at=item.at, force=item.force, grace_seconds=item.grace_seconds)
    return Wish(actor=item.actor, at=item.at)


def wish(record: JobRecord, item: AnyStop | AnyPause, now: datetime) -> StepResult:
    """Set what is desired of an attempt in other services' hands. Stop goes before pause; a force adds to a stop.

    While its outputs are copied back that keeps an automatic retry away, but no longer changes how the command ended.
    """
    asked = wish_of(item)
    if isinstance(item, i.Stop | f.PolicyStop):
        if record.desired_state is Desired.STOPPED and (record.wish is None or record.wish.force or not asked.force):
            return ignored(record, "it is being stopped already")
        desired = Desired.STOPPED
    elif record.desired_state is Desired.STOPPED:
        return refused(record, "it is being stopped")
    elif record.desired_state is Desired.PAUSED:
        return ignored(record, "it is being paused already")
    else:
        desired = Desired.PAUSED
    known = picture(record.current).exited is not None if record.wish is None else record.wish.exit_known
    asked = asked.model_copy(update={"exit_known": known})
    return applied(settle(record.model_copy(update={"desired_state": desired, "wish": asked}), now))


def stop_now(record: JobRecord, item: AnyStop, now: datetime) -> StepResult:
    """Nothing of it is in anybody's hands: STOPPED at once."""
    return applied(_end(record, Desired.STOPPED, wish_of(item), EndReason.STOPPED_BY_USER, now))


def pause_now(record: JobRecord, item: AnyPause, now: datetime) -> StepResult:
    """Nothing of it is in anybody's hands: PAUSED at once."""
    return applied(_end(record, Desired.PAUSED, wish_of(item), EndReason.PAUSED_BY_USER, now))


def unreachable(record: JobRecord, item: i.UpstreamFailed, now: datetime) -> StepResult:
    """Its pipeline will not reach it."""
    asked = Wish(actor=f"step {item.step}", at=item.at)
    return applied(_end(record, Desired.STOPPED, asked, EndReason.UPSTREAM_FAILED, now))


def _end(record: JobRecord, desired: Desired, asked: Wish, reason: EndReason, now: datetime) -> JobRecord:
    state = REASONS[reason].state
    detail = (
        asked.actor if reason is EndReason.UPSTREAM_FAILED else f"by {asked.actor} at {asked.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    said = sentence(reason, record.exit, detail)
    seen = picture(record.current)
    attempt = record.current
    if record.state is State.QUEUED:
        attempt = attempt.model_copy(update={"sealed": True, "end_reason": reason, "message": said, "finished_at": now})
        stages = closed_stages(record, attempt, seen, None, False, now)
    else:
        stages = record.stages
    return record.model_copy(
        update={
            "state": state,
            "desired_state": desired,
            "wish": asked,
            "gate": None,
            "closed_gates": (),
            "hold": None,
            "attempts": (*record.attempts[:-1], attempt),
            "stages": stages,
            "end_reason": reason,
            "message": said,
            "phase": Phase.SUSPENDED if state is State.PAUSED and record.kind == "workstation" else None,
            "hint": hint(reason, record),
            "finished_at": now,
        }
    )


def resume(record: JobRecord, item: i.Resume, now: datetime) -> StepResult:
    """PAUSED to QUEUED: attempt n + 1 of the same run."""
    retries = record.retries.model_copy(update={"cooldown_until": None})
    return applied(next_attempt(record, now, retries=retries, message=None))


def retry(record: JobRecord, item: i.Retry, now: datetime) -> StepResult:
    """FAILED or STOPPED to QUEUED, by hand: outside the automatic budgets."""
    if record.recopy is not None:
        return refused(record, "its outputs are being copied again: wait for that")
    retries = record.retries.model_copy(update={"cooldown_until": None})
    return applied(next_attempt(record, now, retries=retries, message=None))


def hold(record: JobRecord, item: i.Hold, now: datetime) -> StepResult:
    """Close the `hold` gate; an admin's hold replaces a user's, never the other way."""
    if record.hold is not None and (record.hold.by_admin or not item.by_admin):
        return ignored(record, "it is held already")
    mark = HoldMark(actor=item.actor, reason=item.reason, by_admin=item.by_admin, at=item.at)
    return applied(record.model_copy(update={"hold": mark}))


def release(record: JobRecord, item: i.Release, now: datetime) -> StepResult:
    """Open the `hold` gate."""
    if record.hold is None:
        return ignored(record, "nothing holds it")
    if record.hold.by_admin and not item.by_admin:
        return refused(record, f"an admin holds it ({record.hold.reason}): only an admin can release it")
    return applied(record.model_copy(update={"hold": None}))


def open_upstream(record: JobRecord, item: i.UpstreamDone, now: datetime) -> StepResult:
    """Open the `upstream` gate; what was said of it is so no more."""
    if record.pipeline is None or record.pipeline.upstream_done:
        return ignored(record, "no step before it is waited for")
    update: dict[str, object] = {"pipeline": record.pipeline.model_copy(update={"upstream_done": True})}
    if record.state is not State.QUEUED or record.gate is None or record.gate.name != "upstream":
        return applied(record.model_copy(update=update))
    return applied(derive(record.model_copy(update=update | {"gate": None, "closed_gates": ()})))


def open_recopy(record: JobRecord, item: i.Recopy, now: datetime) -> StepResult:
    """Copy the outputs again, outside the attempt: the state stays FAILED, no slot, no GPUs."""
    if record.end_reason is not EndReason.COPY_BACK_FAILED:
        return refused(record, "only outputs whose copying back failed can be copied again")
    if record.recopy is not None:
        return ignored(record, "its outputs are being copied again already")
    number = record.recopies + 1
    mark = RecopyMark(number=number, actor=item.actor, at=item.at)
    return applied(record.model_copy(update={"recopy": mark, "recopies": number}))


def delete(record: JobRecord, item: i.Delete, now: datetime) -> StepResult:
    """Forget the job; a tombstone stays."""
    if record.recopy is not None:
        return refused(record, "its outputs are being copied again: wait for that")
    if holdings(record)[0]:
        return refused(record, "the cluster has not freed its GPUs yet: wait for that")
    return applied(record.model_copy(update={"deleted": True}))
