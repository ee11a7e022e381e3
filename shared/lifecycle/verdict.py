"""How a sealed attempt ended: written once, from its evidence and what people wished."""

import signal as signals
from dataclasses import dataclass
from typing import Final

from shared.lifecycle import facts as f
from shared.lifecycle.picture import Picture
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import Exit, JobRecord, Wish
from shared.lifecycle.states import Desired, StageName, State

NO_EXIT: Final = Exit()
MAX_MESSAGE: Final = 600
_FORGOTTEN: Final = (
    "the backend was asked to stop it, and this record does not know by whom: it was taken back by a restore"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of an attempt; `detail` follows the reason's sentence."""

    reason: EndReason
    exit: Exit = NO_EXIT
    detail: str | None = None
    stage: StageName | None = None


def verdict(record: JobRecord, seen: Picture) -> Verdict:
    """The verdict on a sealed attempt. Precedence of wishes: stop, pause, run.

    An exit keeps its real outcome unless the backend's side recorded our stop before it; with nothing to compare it is
    what was wished, unless the exit was known before the wish. After a restore a recorded stop that nobody wished was
    wished in the time that is lost.
    """
    desired, wish = record.desired_state, record.wish
    if seen.exited is not None:
        return _of_exit(record, seen, seen.exited)
    if desired is Desired.STOPPED:
        return Verdict(wished(desired, wish), detail=who(wish))
    if seen.input_invalid is not None:
        return Verdict(EndReason.INPUT_INVALID, detail=_first_findings(seen.input_invalid.findings))
    if seen.staging_failed is not None:
        reason = _failure(seen.staging_failed.reason, EndReason.STAGING_FAILED)
        return Verdict(reason, detail=seen.staging_failed.message)
    if seen.refused is not None:
        return Verdict(_failure(seen.refused.reason, EndReason.LAUNCH_REFUSED), detail=seen.refused.message)
    if seen.lost is None and desired is Desired.PAUSED:
        return Verdict(wished(desired, wish), detail=who(wish))
    return Verdict(EndReason.LOST, stage=_where(seen))


def _of_exit(record: JobRecord, seen: Picture, exited: f.Exited) -> Verdict:
    exit_ = Exit(code=exited.code, signal=exited.signal, self_reported=exited.self_reported)
    desired, wish = record.desired_state, record.wish
    if desired is not Desired.RUN and _by_our_wish(exited, wish):
        return Verdict(wished(desired, wish), exit_, who(wish))
    if desired is Desired.RUN and exited.stop_recorded is True:
        if over_budget(record) or seen.lost_before is not None:
            return _given_up(record, seen, exit_)
        if record.epoch > 1:
            return Verdict(EndReason.STOPPED_BY_USER, exit_, _FORGOTTEN)
    reason = exit_reason(exited)
    if reason is EndReason.TIME_LIMIT and record.kind == "workstation":
        return Verdict(EndReason.LIFETIME_OVER, exit_)
    if reason is not EndReason.SUCCEEDED:
        return Verdict(reason, exit_, exited.message, None if seen.reached_running else _where(seen))
    copied = seen.staging_sealed
    if copied is None or copied.outcome == "verified" or (copied.outcome == "none" and not record.has_outputs):
        return Verdict(EndReason.SUCCEEDED, exit_)
    if copied.outcome == "missing":
        return Verdict(EndReason.OUTPUTS_MISSING, exit_, ", ".join(copied.missing[:5]) or copied.message)
    if copied.outcome == "expectation_failed":
        return Verdict(EndReason.EXPECTATION_FAILED, exit_, copied.message)
    return Verdict(EndReason.COPY_BACK_FAILED, exit_, copied.message or "nobody looked for them")


def _by_our_wish(exited: f.Exited, wish: Wish | None) -> bool:
    if exited.stop_recorded is not None:
        return exited.stop_recorded
    return exited.reason is None and not (wish is not None and wish.exit_known)


def _given_up(record: JobRecord, seen: Picture, exit_: Exit) -> Verdict:
    """Nobody wished it: the launcher ended it because it was lost, or was requeued more often than allowed."""
    if over_budget(record):
        used, budget = record.retries.infrastructure_used, record.retries.infrastructure_budget
        detail = f"{used} interruptions by the infrastructure, of {budget} allowed"
        return Verdict(EndReason.PREEMPTED, exit_, detail, _where(seen))
    return Verdict(EndReason.LOST, exit_, "what was found of it later was ended", _where(seen))


def over_budget(record: JobRecord) -> bool:
    """The infrastructure interrupted the job more often than its budget allows: the launcher ends it."""
    return record.retries.infrastructure_used > record.retries.infrastructure_budget


def _where(seen: Picture) -> StageName:
    return StageName.RUNNING_JOB if seen.reached_running else StageName.STARTING_CLUSTER


def exit_reason(exited: f.Exited) -> EndReason:
    """What a recorded end says by itself. Success needs an exit code of 0 and no signal, whatever reason is given;
    nothing recorded is `lost`."""
    if exited.reason is not None and (
        REASONS[exited.reason].state is State.FAILED or exited.reason is EndReason.STOPPED_AT_BACKEND
    ):
        return exited.reason
    if exited.signal:
        return EndReason.KILLED_BY_SIGNAL
    if exited.code is None:
        return EndReason.LOST
    return EndReason.SUCCEEDED if exited.code == 0 else EndReason.EXIT_NONZERO


def _failure(given: EndReason, otherwise: EndReason) -> EndReason:
    return given if REASONS[given].state is State.FAILED else otherwise


def _first_findings(findings: tuple[f.Finding, ...]) -> str:
    more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
    return "; ".join(found.message for found in findings[:3]) + more


def sentence(reason: EndReason, exit_: Exit, detail: str | None) -> str:
    """The end reason's sentence with its numbers; the detail follows after a colon."""
    text = REASONS[reason].sentence.format(code=exit_.code, signal=_signal_name(exit_.signal))
    said = f"{text}: {detail}" if detail else text
    return said if len(said) <= MAX_MESSAGE else said[: MAX_MESSAGE - 1] + "…"


def wished(desired: Desired, wish: Wish | None) -> EndReason:
    """The end reason of what was wished, which tells a user, a policy and an admin apart."""
    if desired is Desired.STOPPED:
        by_policy = wish is not None and wish.by_policy
        return EndReason.STOPPED_BY_POLICY if by_policy else EndReason.STOPPED_BY_USER
    if wish is not None and wish.by_admin:
        return EndReason.PAUSED_BY_ADMIN
    return EndReason.PAUSED_BY_POLICY if wish is not None and wish.by_policy else EndReason.PAUSED_BY_USER


def who(wish: Wish | None) -> str | None:
    """Who wished it, when, and why where that was said."""
    if wish is None:
        return None
    said = f"by {wish.actor} at {wish.at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{said} ({wish.reason})" if wish.reason else said


def _signal_name(number: int | None) -> str:
    try:
        return "unknown" if number is None else f"{number} ({signals.Signals(number).name})"
    except ValueError:
        return str(number)
