"""What the backend's answers make of a launch. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from signal import Signals
from typing import Final, assert_never

from services.launcher.domain import Launch, State
from shared.backends.local.messages import LaunchAnswer, LaunchKind, LaunchRequest
from shared.contracts.spec import JobSpec
from shared.lifecycle.reasons import EndReason

_TOO_LATE: Final = "too_late"
_REASONS: Final[dict[str, EndReason]] = {
    "no_uid": EndReason.CONFIGURATION,
    "configuration": EndReason.CONFIGURATION,
}
"""Reasons of a refusal that are no fault of the job's; all others are `launch_refused`."""
_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Taken:
    """The backend has it, since `begun_at`, and knows it as `ref`."""

    begun_at: datetime
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """Ask again after a pause. `absent`: the backend is known to have nothing of it."""

    why: str
    absent: bool


@dataclass(frozen=True, slots=True)
class Never:
    """The backend will never take it."""

    reason: EndReason
    message: str


Outcome = Taken | Later | Never


def outcome(answer: LaunchAnswer, now: datetime) -> Outcome:
    """What an answer means; one that came too late, or is unclear, is asked again for the same submission."""
    match answer.kind:
        case LaunchKind.ACCEPTED | LaunchKind.ALREADY:
            return Taken(now, answer.ref)
        case LaunchKind.BUSY:
            return Later(answer.sentence, absent=True)
        case LaunchKind.UNCLEAR:
            return Later(answer.sentence, absent=False)
        case LaunchKind.REFUSED if answer.reason == _TOO_LATE:
            return Later(answer.sentence, absent=False)
        case LaunchKind.REFUSED:
            return Never(_REASONS.get(answer.reason or "", EndReason.LAUNCH_REFUSED), answer.sentence)
        case never:
            assert_never(never)


def apply(row: Launch, result: Outcome, now: datetime) -> Launch:
    """The row after the answer: `submitted`, `intent` again, or `revoking` with the refusal."""
    done = replace(row, owner=None, token=None, deadline=None, waits_for=None)
    match result:
        case Taken(begun_at, ref):
            return replace(done, state=State.SUBMITTED, accepted_at=now, begun_at=begun_at, ref=ref, asked=True)
        case Later(why, absent):
            pause = pause_seconds(row.tries)
            return replace(
                done,
                state=State.INTENT,
                next_at=now + timedelta(seconds=pause),
                tries=row.tries + 1,
                waits_for=why,
                asked=not absent,
            )
        case Never(reason, message):
            return replace(
                done,
                state=State.REVOKING,
                grace_seconds=0.0,
                next_at=now,
                refused_reason=reason.value,
                refused_message=message,
            )
        case never:
            assert_never(never)


def pause_seconds(tries: int) -> float:
    """Growing, so that what cannot start now costs little."""
    return float(min(_FIRST_PAUSE_SECONDS * 2 ** min(tries, 16), _LONGEST_PAUSE_SECONDS))


def request(row: Launch, spec: JobSpec, stop_grace_seconds: float) -> LaunchRequest | Never:
    """The order for the backend; a directory that is not the attempt's own is refused.

    The backend sets TIDEGATE_JOB_ID and its like itself, over whatever the job brought. `stop_grace_seconds` is for a
    job that says nothing about what it needs at its time limit.
    """
    if row.time_limit_seconds == 0:
        return Never(EndReason.LAUNCH_REFUSED, "its maximum lifetime is used up: start another workstation")
    place = f"work/{row.tenant}/{row.job}/a{row.attempt}/"
    directory = row.directory or ""
    name = directory.removeprefix(place)
    if not directory.startswith(place) or not name or "/" in name or name.startswith("."):
        return Never(
            EndReason.CONFIGURATION,
            f"its inputs were staged into {directory!r}; that has to be one folder in {place}: see the stager's log",
        )
    return LaunchRequest(
        submission=row.submission,
        tenant=row.tenant,
        run=row.job,
        directory=name,
        command=spec.command,
        environment=dict(spec.env),
        coretype=spec.coretype,
        gpus=row.gpus,
        nodes=spec.nodes,
        time_limit_seconds=row.time_limit_seconds,
        stop_grace_seconds=stop_grace_seconds if spec.stop_grace_seconds is None else spec.stop_grace_seconds,
        warning_signal=None if spec.warning_signal is None else Signals[f"SIG{spec.warning_signal}"],
        warning_seconds=spec.warning_seconds,
        resumed=row.resumed,
        workstation=row.workstation,
        not_after=row.deadline,
    )
