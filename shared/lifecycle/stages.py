"""The five stages of an attempt, derived from its evidence: status, times, and what the active one waits on."""

from datetime import datetime

from shared.lifecycle.facts import Lost
from shared.lifecycle.picture import Picture, last_seen_at
from shared.lifecycle.reasons import REASONS
from shared.lifecycle.record import Attempt, JobRecord, Stage
from shared.lifecycle.states import Desired, StageName, StageStatus, State
from shared.lifecycle.verdict import verdict

_ORDER = tuple(StageName)


def open_stages(record: JobRecord, attempt: Attempt, seen: Picture) -> tuple[Stage, ...]:
    """The stages of an attempt that goes on. What the command's exit says of a stage is shown as soon as it is known,
    while its outputs are still being copied back."""
    starts = _starts(attempt, seen)
    at_exit = _at_exit(record, seen)
    stages: list[Stage] = []
    later: datetime | None = None
    for name in reversed(_ORDER):
        at = starts[name]
        if later is not None:
            started = at or later
            ended = max(started, later)  # two hosts' clocks never make a stage end before it began
            status = at_exit.get(name, StageStatus.PASSED)
            stages.append(Stage(name=name, status=status, started_at=started, ended_at=ended))
        elif at is not None:
            waiting = waiting_on(record, seen, name)
            stages.append(Stage(name=name, status=StageStatus.ACTIVE, started_at=at, waiting_on=waiting))
        else:
            stages.append(Stage(name=name))
        later = at or later
    return tuple(reversed(stages))


def closed_stages(
    record: JobRecord, attempt: Attempt, seen: Picture, failed: StageName | None, succeeded: bool, now: datetime
) -> tuple[Stage, ...]:
    """The stages at the verdict: what was reached has passed but for the failed one; what was not is skipped, and so is
    running_job where the command did not end by itself.

    An attempt whose command ran passes stopping_cluster too (its outputs were looked after), unless that failed; so
    does one whose end nobody saw, where outputs came back verified. What is gone without an exit ran until it was seen
    last.
    """
    stages = []
    copied = seen.staging_sealed is not None and seen.staging_sealed.outcome == "verified"
    released = seen.reached_running and (seen.exited is not None or copied)
    for stage in open_stages(record, attempt, seen):
        last = stage.name is StageName.STOPPING_CLUSTER
        before_failed = failed is not None and _ORDER.index(stage.name) < _ORDER.index(failed)
        if stage.name is failed:
            status = StageStatus.FAILED
        elif stage.status is StageStatus.PASSED or (stage.status is StageStatus.ACTIVE and before_failed):
            status = StageStatus.PASSED
        else:
            status = StageStatus.PASSED if last and (succeeded or released) else StageStatus.SKIPPED
        ended = None if stage.started_at is None else stage.ended_at or max(_ended(seen, stage, now), stage.started_at)
        stages.append(stage.model_copy(update={"status": status, "ended_at": ended, "waiting_on": None}))
    return tuple(stages)


def _at_exit(record: JobRecord, seen: Picture) -> dict[StageName, StageStatus]:
    """What the verdict on a known exit will say of the stages before stopping_cluster."""
    if seen.exited is None or not seen.reached_running:
        return {}
    outcome = verdict(record, seen)
    row = REASONS[outcome.reason]
    if row.state in (State.STOPPED, State.PAUSED):
        return {StageName.RUNNING_JOB: StageStatus.SKIPPED}
    failed = outcome.stage or row.stage
    return {} if failed in (None, StageName.STOPPING_CLUSTER) else {failed: StageStatus.FAILED}


def _ended(seen: Picture, stage: Stage, now: datetime) -> datetime:
    """When a stage ended that no later one followed."""
    if stage.name is not StageName.RUNNING_JOB or seen.lost is None or seen.running is None:
        return now
    return last_seen_at(seen.running, seen.lost)


def after_recopy(stages: tuple[Stage, ...], now: datetime) -> tuple[Stage, ...]:
    """The stages once a recopy was verified: stopping_cluster has passed after all."""
    done = {"status": StageStatus.PASSED, "ended_at": now}
    return (*stages[:-1], stages[-1].model_copy(update=done))


def _starts(attempt: Attempt, seen: Picture) -> dict[StageName, datetime | None]:
    checked = seen.input_valid or seen.staged
    ran = seen.exited if seen.exited is not None and seen.exited.started_at is not None else seen.running
    if seen.requeued is not None:
        ran = None
    gone = seen.exited if seen.exited is not None and seen.reached_running else None
    return {
        StageName.QUEUED: attempt.queued_at,
        StageName.VALIDATING_INPUT: attempt.admitted_at,
        StageName.STARTING_CLUSTER: None if checked is None else checked.at,
        StageName.RUNNING_JOB: None if ran is None else ran.started_at,
        StageName.STOPPING_CLUSTER: None if gone is None else gone.ended_at,
    }


def waiting_on(record: JobRecord, seen: Picture, stage: StageName) -> str | None:
    """What the active stage waits on, in words."""
    if record.desired_state is not Desired.RUN and stage is not StageName.STOPPING_CLUSTER:
        wish = "stopped" if record.desired_state is Desired.STOPPED else "paused"
        return f"being {wish}, asked by {record.wish.actor}" if record.wish is not None else f"being {wish}"
    if seen.lost is not None and stage in (StageName.STARTING_CLUSTER, StageName.RUNNING_JOB):
        return _gone(seen, seen.lost)
    match stage:
        case StageName.QUEUED:
            return (
                "the gatekeeper to look at it" if record.gate is None else f"{record.gate.name}: {record.gate.reason}"
            )
        case StageName.VALIDATING_INPUT:
            return "the stager: checking inputs and command"
        case StageName.STARTING_CLUSTER:
            return _starting(seen)
        case StageName.RUNNING_JOB:
            return "the command"
        case StageName.STOPPING_CLUSTER:
            return "the cluster to be released" if seen.stager_voted else "outputs being copied back"


def _gone(seen: Picture, lost: Lost) -> str:
    last = last_seen_at(seen.running, lost) if seen.running is not None else lost.last_seen_at
    return "not seen at the backend" if last is None else f"not seen at the backend since {last:%H:%M:%S} UTC"


def _starting(seen: Picture) -> str:
    if seen.staged is None:
        return "the stager: staging inputs in"
    if seen.requeued is not None:
        return f"the backend, which requeued it: {seen.requeued.raw_reason}"
    if seen.pending is not None:
        return f"the backend: {seen.pending.raw_reason or seen.pending.raw_state}"
    return "the launcher" if seen.accepted is None else "the backend"
