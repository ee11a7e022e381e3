"""How a sealed attempt ended: written once, from its evidence and what people wished."""

import signal as signals
from dataclasses import dataclass

from shared.lifecycle import facts as f
from shared.lifecycle.picture import Picture
from shared.lifecycle.reasons import REASONS, EndReason
from shared.lifecycle.record import Exit, JobRecord, Wish
from shared.lifecycle.states import Desired, StageName

NO_EXIT = Exit()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of an attempt; `detail` follows the reason's sentence."""

    reason: EndReason
    exit: Exit = NO_EXIT
    detail: str | None = None
    stage: StageName | None = None


def verdict(seen: Picture, desired: Desired, wish: Wish | None) -> Verdict:
    """The verdict on a sealed attempt. Precedence of wishes: stop, pause, run.

    An exit keeps its real outcome unless the backend's side recorded our stop before it; with nothing to compare, a
    job that was to be stopped is STOPPED.
    """
    if seen.exited is not None:
        return _of_exit(seen, seen.exited, desired, wish)
    if desired is Desired.STOPPED:
        return Verdict(EndReason.STOPPED_BY_USER, detail=_who(wish))
    if seen.input_invalid is not None:
        findings = seen.input_invalid.findings
        more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
        return Verdict(EndReason.INPUT_INVALID, detail="; ".join(found.message for found in findings[:3]) + more)
    if seen.staging_failed is not None:
        return Verdict(seen.staging_failed.reason, detail=seen.staging_failed.message)
    if seen.refused is not None:
        return Verdict(seen.refused.reason, detail=seen.refused.message)
    if seen.lost is None and desired is Desired.PAUSED:
        return Verdict(EndReason.PAUSED_BY_USER, detail=_who(wish))
    stage = StageName.RUNNING_JOB if seen.reached_running else StageName.STARTING_CLUSTER
    return Verdict(EndReason.LOST, stage=stage)


def _of_exit(seen: Picture, exited: f.Exited, desired: Desired, wish: Wish | None) -> Verdict:
    exit_ = Exit(code=exited.code, signal=exited.signal, self_reported=exited.self_reported)
    ours = exited.stop_recorded is True or (exited.stop_recorded is None and exited.reason is None)
    if desired is Desired.STOPPED and ours:
        return Verdict(EndReason.STOPPED_BY_USER, exit_, _who(wish))
    if desired is Desired.PAUSED and exited.stop_recorded is True:
        return Verdict(EndReason.PAUSED_BY_USER, exit_, _who(wish))
    reason = exit_reason(exited)
    if reason is not EndReason.SUCCEEDED:
        stage = None if seen.reached_running else StageName.STARTING_CLUSTER
        return Verdict(reason, exit_, exited.message, stage)
    copied = seen.staging_sealed
    if copied is None or copied.outcome in ("none", "verified"):
        return Verdict(EndReason.SUCCEEDED, exit_)
    if copied.outcome == "missing":
        return Verdict(EndReason.OUTPUTS_MISSING, exit_, ", ".join(copied.missing[:5]))
    failed = EndReason.COPY_BACK_FAILED if copied.outcome == "failed" else EndReason.EXPECTATION_FAILED
    return Verdict(failed, exit_, copied.message)


def exit_reason(exited: f.Exited) -> EndReason:
    """What a recorded end says by itself. Success needs an exit code of 0 and no signal; nothing recorded is `lost`."""
    if exited.reason is not None:
        return exited.reason
    if exited.signal:
        return EndReason.KILLED_BY_SIGNAL
    if exited.code is None:
        return EndReason.LOST
    return EndReason.SUCCEEDED if exited.code == 0 else EndReason.EXIT_NONZERO


def sentence(reason: EndReason, exit_: Exit, detail: str | None) -> str:
    """The end reason's sentence with its numbers; the detail follows after a colon."""
    text = REASONS[reason].sentence.format(code=exit_.code, signal=_signal_name(exit_.signal))
    return f"{text}: {detail}" if detail else text


def hint(reason: EndReason, record: JobRecord) -> str | None:
    """What to do next, none where there is nothing to do."""
    text = REASONS[reason].hint
    return None if text is None else text.format(job=record.id)


def _who(wish: Wish | None) -> str | None:
    return None if wish is None else f"by {wish.actor} at {wish.at:%Y-%m-%d %H:%M:%S} UTC"


def _signal_name(number: int | None) -> str:
    try:
        return "unknown" if number is None else f"{number} ({signals.Signals(number).name})"
    except ValueError:
        return str(number)
