"""The attempts of a job on the screen: each with what began it, its stages' times, its end, GPU time and evidence."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Final

from services.cli.escapes import marked
from services.cli.evidence import clock, evidence_lines
from services.cli.output import but_the_state, duration, out, state_text
from services.cli.waiting import ORIGINS
from shared.client.views import JobView
from shared.lifecycle.reasons import REASONS
from shared.lifecycle.record import Attempt, Folded, Segment, Stage
from shared.lifecycle.states import StageName, StageStatus, State

MARKS: Final = {
    StageStatus.PASSED: ("✓", "green"),
    StageStatus.FAILED: ("✗", "bold red"),
    StageStatus.ACTIVE: ("▸", "bold blue"),
    StageStatus.WAITING: ("·", "dim"),
    StageStatus.SKIPPED: ("-", "dim"),
}
_SHORT: Final = {
    StageName.QUEUED: "queued",
    StageName.VALIDATING_INPUT: "input",
    StageName.STARTING_CLUSTER: "start",
    StageName.RUNNING_JOB: "run",
    StageName.STOPPING_CLUSTER: "end",
}


def show_attempts(job: JobView) -> None:
    """The only attempt's segments and evidence, or a paragraph for each that is kept, the oldest first."""
    day = job.submitted_at.astimezone(UTC).date()
    if len(job.attempts) == 1 and job.earlier is None:
        lines = list(_seen(job.attempts[0], day))
        if lines:
            out.print()
            out.print("  [dim]seen[/]")
        for line in lines:
            out.print(f"  {line}")
        return
    if job.earlier is not None and job.earlier.attempts:
        out.print()
        out.print(f"  [dim]{_folded(job.earlier)}; what was seen of them: tidegate events {job.id}[/]")
    for attempt in job.attempts:
        out.print()
        out.print(f"  {_head(job, attempt, day)}")
        if stages := _stages(job, attempt):
            out.print(f"    {stages}")
        for line in _seen(attempt, day):
            out.print(f"    {line}")
        if attempt.folded is not None and attempt.folded.until is None:
            out.print(f"    [dim]{_exit(attempt)}what was seen of it: tidegate events {job.id}[/]")


def _head(job: JobView, attempt: Attempt, day: date) -> str:
    """`attempt 2  resumed 15:04:05, FAILED 15:09:10: the command exited with code 3`."""
    after = f" (before that {marked(attempt.began_after)})" if attempt.began_after else ""
    began = f"{ORIGINS[attempt.origin]} {clock(attempt.queued_at, day)}{after}"
    if attempt.end_reason is None or attempt.finished_at is None:
        state = f", {state_text(job.state)}" if attempt.number == job.attempt else ""
        said = f": {marked(attempt.message)}" if attempt.message else ""
    else:
        word = REASONS[attempt.end_reason].state
        state = f", {state_text(word)} {clock(attempt.finished_at, day)}"
        why = "" if word is State.SUCCEEDED else but_the_state(word, attempt.message or attempt.end_reason)
        said = f": {marked(why)}" if why else ""
    return f"[bold]attempt {attempt.number}[/]  {began}{state}{said}"


def _stages(job: JobView, attempt: Attempt) -> str:
    stages = job.stages if attempt.number == job.attempt else attempt.stages
    return "  ".join(_short(stage) for stage in stages)


def _short(stage: Stage) -> str:
    mark, style = MARKS[stage.status]
    time = stage_time(stage)
    return f"[{style}]{mark} {_SHORT[stage.name]}[/]" + (f" {time}" if time else "")


def stage_time(stage: Stage) -> str:
    """How long a stage took, or has taken; nothing of one that was not reached or was skipped without any time."""
    if stage.started_at is None:
        return ""
    return duration(((stage.ended_at or datetime.now(UTC)) - stage.started_at).total_seconds())


def _seen(attempt: Attempt, day: date) -> Iterator[str]:
    if attempt.folded is not None and attempt.folded.segments:
        yield _folded(attempt.folded)
    for segment in attempt.segments:
        if segment.started_at is not None:
            yield _segment(segment, day)
    yield from evidence_lines(attempt.evidence, day)


def _segment(segment: Segment, day: date) -> str:
    assert segment.started_at is not None
    until = "now" if segment.ended_at is None else clock(segment.ended_at, day)
    took = (segment.ended_at or datetime.now(UTC)) - segment.started_at
    gpus = f", {segment.gpus} GPU{'' if segment.gpus == 1 else 's'}" if segment.gpus else ""
    if segment.gpus and segment.gpu_milliseconds is not None:
        gpus += f": {gpu_seconds(segment.gpu_milliseconds)} GPU seconds"
    notes = [
        "estimated" if segment.estimated else "",
        "" if segment.billable else "not billed",
        f"suspended for {duration(segment.suspended_ms / 1000)}" if segment.suspended_ms else "",
        segment.ended if segment.ended not in (None, "exited") else "",
    ]
    said = "".join(f", {note}" for note in notes if note)
    return f"ran {clock(segment.started_at, day)} - {until} ({duration(took.total_seconds())}){gpus}{said}"


def _exit(attempt: Attempt) -> str:
    """How the command of an attempt ended whose evidence is not kept."""
    if attempt.exit.signal:
        return f"ended by signal {attempt.exit.signal}; "
    return "" if attempt.exit.code is None else f"exited with code {attempt.exit.code}; "


def _folded(sums: Folded) -> str:
    number, what = (sums.attempts, "attempt") if sums.attempts else (sums.segments, "segment")
    of = f"{number} {what}{'' if number == 1 else 's'}"
    about = ", estimated" if sums.estimated else ""
    before = " before" if sums.attempts or sums.until is not None else ""
    return f"{of}{before}: {gpu_seconds(sums.gpu_milliseconds)} GPU seconds{about}"


def gpu_seconds(milliseconds: int) -> str:
    """Integer milliseconds as decimal seconds: `1.250`."""
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}"
