"""The steps of `advance` that commands take, from a person or from a policy."""

from datetime import datetime
from typing import Final

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.derive import derive
from shared.lifecycle.duties import holdings
from shared.lifecycle.finish import next_attempt, settle
from shared.lifecycle.gates import at_gates_anew, at_own_gates
from shared.lifecycle.hints import hint
from shared.lifecycle.outcome import StepResult, applied, ignored, refused
from shared.lifecycle.picture import picture
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import HoldMark, JobRecord, RecopyMark, Wish
from shared.lifecycle.stages import closed_stages
from shared.lifecycle.states import Desired, Phase, State
from shared.lifecycle.usage import remaining_seconds
from shared.lifecycle.verdict import sentence, who, wished

IDLE_POLICY: Final = "idle"
"""The policy that suspends idle workstations, which a snooze puts off."""

AnyStop = i.Stop | f.PolicyStop
AnyPause = i.Pause | f.PolicyPause


def wish_of(item: AnyStop | AnyPause) -> Wish:
    """Who asks, and how."""
    if isinstance(item, f.PolicyStop | f.PolicyPause):
        return Wish(actor=f"policy {item.policy} ({item.reason})", at=item.at, by_policy=True)
    if isinstance(item, i.Stop):
        return Wish(actor=item.actor, at=item.at, force=item.force, grace_seconds=item.grace_seconds)
    return Wish(actor=item.actor, at=item.at, by_admin=item.by_admin, reason=item.reason)


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
    elif record.desired_state is Desired.PAUSED and not _adds_an_admin(record, asked):
        return ignored(record, "it is being paused already")
    elif _put_off(record, item):
        return ignored(record, "its user has put that off")
    else:
        desired = Desired.PAUSED
    known = picture(record.current).exited is not None if record.wish is None else record.wish.exit_known
    asked = asked.model_copy(update={"exit_known": known})
    hold = record.hold if desired is Desired.PAUSED else admins_hold(record)
    return applied(settle(record.model_copy(update={"desired_state": desired, "wish": asked, "hold": hold}), now))


def _put_off(record: JobRecord, item: AnyPause) -> bool:
    """A snooze that came before the suspension for being idle that it is about."""
    if not isinstance(item, f.PolicyPause) or item.policy != IDLE_POLICY or record.workstation is None:
        return False
    return record.workstation.snoozed_until is not None and item.at < record.workstation.snoozed_until


def admins_hold(record: JobRecord) -> HoldMark | None:
    """The hold of a job that is stopped, or started again, while an admin's pause is wished or in force: whoever could
    do that would else get round the admin, so the pause goes on as the admin's hold of the next attempt."""
    wish = record.wish
    if wish is None or record.desired_state is not Desired.PAUSED or not wish.by_admin:
        return record.hold
    return HoldMark(actor=wish.actor, reason=wish.reason or "paused by an admin", by_admin=True, at=wish.at)


def stop_now(record: JobRecord, item: AnyStop, now: datetime) -> StepResult:
    """Nothing of it is in anybody's hands: STOPPED at once."""
    asked = wish_of(item)
    return applied(_end(record, Desired.STOPPED, asked, wished(Desired.STOPPED, asked), now))


def pause_now(record: JobRecord, item: AnyPause, now: datetime) -> StepResult:
    """Nothing of it is in anybody's hands: PAUSED at once."""
    asked = wish_of(item)
    return applied(_end(record, Desired.PAUSED, asked, wished(Desired.PAUSED, asked), now))


def pause_again(record: JobRecord, item: i.Pause, now: datetime) -> StepResult:
    """An admin's pause takes the place of a user's or a policy's: from then on only an admin resumes it."""
    asked = wish_of(item)
    if not _adds_an_admin(record, asked):
        return ignored(record, "it is paused already")
    reason = wished(Desired.PAUSED, asked)
    said = sentence(reason, record.exit, who(asked))
    update = {"wish": asked, "end_reason": reason, "message": said, "hint": hint(reason, record)}
    return applied(record.model_copy(update=update))


def _adds_an_admin(record: JobRecord, asked: Wish) -> bool:
    return asked.by_admin and (record.wish is None or not record.wish.by_admin)


def snooze(record: JobRecord, item: i.Snooze, now: datetime) -> StepResult:
    """Put off that an idle workstation is suspended."""
    if record.workstation is None:
        return refused(record, "it is a batch job: only a workstation is suspended for being idle")
    if record.workstation.idle_suspend_seconds is None:
        return refused(record, "nothing suspends this workstation for being idle")
    if record.desired_state is not Desired.RUN:
        return refused(record, f"it is being {record.desired_state}")
    mark = record.workstation.model_copy(update={"snoozed_until": item.until})
    return applied(derive(record.model_copy(update={"workstation": mark})))


def unreachable(record: JobRecord, item: i.UpstreamFailed, now: datetime) -> StepResult:
    """Its pipeline will not reach it."""
    asked = Wish(actor=f"step {item.step}", at=item.at)
    return applied(_end(record, Desired.STOPPED, asked, EndReason.UPSTREAM_FAILED, now))


def _end(record: JobRecord, desired: Desired, asked: Wish, reason: EndReason, now: datetime) -> JobRecord:
    state = REASONS[reason].state
    detail = asked.actor if reason is EndReason.UPSTREAM_FAILED else who(asked)
    said = sentence(reason, record.exit, detail)
    seen = picture(record.current)
    attempt = record.current
    if record.state is State.QUEUED:
        stages = closed_stages(record, attempt, seen, None, False, now)
        ended = {"sealed": True, "end_reason": reason, "message": said, "finished_at": now, "stages": stages}
        attempt = attempt.model_copy(update=ended)
    else:
        stages = record.stages
    return record.model_copy(
        update={
            "state": state,
            "desired_state": desired,
            "wish": asked,
            "gate": None,
            "closed_gates": (),
            "hold": _hold_kept(record, state),
            "attempts": (*record.attempts[:-1], attempt),
            "stages": stages,
            "end_reason": reason,
            "message": said,
            "phase": Phase.SUSPENDED if state is State.PAUSED and record.kind == "workstation" else None,
            "hint": hint(reason, record),
            "finished_at": now,
        }
    )


def _hold_kept(record: JobRecord, state: State) -> HoldMark | None:
    """A pause keeps a hold, and nothing that a user may ask takes an admin's away."""
    if state is State.PAUSED:
        return record.hold
    mark = admins_hold(record)
    return mark if mark is not None and mark.by_admin else None


def resume(record: JobRecord, item: i.Resume, now: datetime) -> StepResult:
    """PAUSED to QUEUED: attempt n + 1 of the same run."""
    if record.wish is not None and record.wish.by_admin and not item.by_admin:
        why = f" ({record.wish.reason})" if record.wish.reason else ""
        return refused(record, f"an admin paused it{why}: only an admin can resume it")
    if remaining_seconds(record) == 0:
        return refused(record, "its maximum lifetime is used up: start another workstation")
    retries = record.retries.model_copy(update={"cooldown_until": None})
    return applied(next_attempt(record, now, origin="resume", retries=retries, message=None))


def retry(record: JobRecord, item: i.Retry, now: datetime) -> StepResult:
    """FAILED or STOPPED to QUEUED, by hand: outside the automatic budgets, within a bound of its own."""
    before = record.retries
    if record.recopy is not None:
        return refused(record, "its outputs are being copied again: wait for that")
    if before.by_hand >= before.by_hand_budget:
        spent = f"its budget of {before.by_hand_budget} retries by hand is spent"
        return refused(record, f"{spent}: submit it again")
    if record.pipeline is not None and not record.pipeline.upstream_done and not item.with_pipeline:
        return refused(record, f"the steps before it have not succeeded: retry its pipeline {record.pipeline.id}")
    if record.end_reason is EndReason.LOST and picture(record.current).launcher_sealed is None and not item.force:
        return refused(record, "nobody has proven that its lost attempt is gone: look for it, then retry with --force")
    if remaining_seconds(record) == 0:
        return refused(record, "its maximum lifetime is used up: start another workstation")
    update = {"cooldown_until": None, "by_hand": before.by_hand + 1, "count": before.count + 1}
    retries = before.model_copy(update=update)
    held = record.model_copy(update={"hold": admins_hold(record)})
    return applied(next_attempt(held, now, origin="retry", retries=retries, message=None))


def hold(record: JobRecord, item: i.Hold, now: datetime) -> StepResult:
    """Close the `hold` gate; an admin's hold replaces a user's, never the other way."""
    if record.hold is not None and (record.hold.by_admin or not item.by_admin):
        return ignored(record, "it is held already")
    mark = HoldMark(actor=item.actor, reason=item.reason, by_admin=item.by_admin, at=item.at)
    return applied(_held_anew(record, mark, now))


def release(record: JobRecord, item: i.Release, now: datetime) -> StepResult:
    """Open the `hold` gate."""
    if record.hold is None:
        return ignored(record, "nothing holds it")
    if record.hold.by_admin and not item.by_admin:
        return refused(record, f"an admin holds it ({record.hold.reason}): only an admin can release it")
    return applied(_held_anew(record, None, now))


def _held_anew(record: JobRecord, mark: HoldMark | None, now: datetime) -> JobRecord:
    changed = record.model_copy(update={"hold": mark})
    return derive(at_gates_anew(changed, now)) if record.state is State.QUEUED else changed


def open_upstream(record: JobRecord, item: i.UpstreamDone, now: datetime) -> StepResult:
    """Open the `upstream` gate; what was said of the others while it was closed may be so no more."""
    if record.pipeline is None or record.pipeline.upstream_done:
        return ignored(record, "no step before it is waited for")
    update = {"pipeline": record.pipeline.model_copy(update={"upstream_done": True})}
    opened = record.model_copy(update=update)
    return applied(derive(at_own_gates(opened, now)) if record.state is State.QUEUED else opened)


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
