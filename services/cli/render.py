"""A job on the screen: its head line, its five stages, what it waits on, and what came out of it."""

from datetime import UTC, datetime

from services.cli.escapes import marked
from services.cli.output import duration, out, size, state_text
from shared.client.views import JobView
from shared.lifecycle.record import Stage
from shared.lifecycle.states import StageStatus, State

_MARKS = {
    StageStatus.PASSED: ("✓", "green"),
    StageStatus.FAILED: ("✗", "bold red"),
    StageStatus.ACTIVE: ("▸", "bold blue"),
    StageStatus.WAITING: ("·", "dim"),
    StageStatus.SKIPPED: ("-", "dim"),
}


def stage_line(stage: Stage) -> str:
    """One stage: mark, name, how long, and what it waits on while it is active."""
    mark, style = _MARKS[stage.status]
    name = stage.name.value.replace("_", " ")
    time = ""
    if stage.started_at is not None and stage.status is not StageStatus.SKIPPED:
        time = duration(((stage.ended_at or datetime.now(UTC)) - stage.started_at).total_seconds())
    line = f"  [{style}]{mark} {name:<17}[/] {time:>9}"
    if stage.status is StageStatus.ACTIVE and stage.waiting_on:
        line += f"   waits on {marked(stage.waiting_on)}"
    return line.rstrip()


def show_job(job: JobView) -> None:
    """Everything that a person asks of a job, on one screen."""
    out.print(f"[bold]{marked(job.name)}[/]  {job.id}  {state_text(job.state)}")
    if job.message:
        out.print(f"  {marked(job.message)}")
    if job.hint:
        out.print(f"  [dim]what to do:[/] {marked(job.hint)}")
    out.print()
    for stage in job.stages:
        out.print(stage_line(stage))
        if stage.status is StageStatus.FAILED:
            for finding in job.findings:
                out.print(f"      {marked(finding.place)}: {marked(finding.message)}")
    if job.state is State.QUEUED and len(job.closed_gates) > 1:
        out.print()
        for gate in job.closed_gates[1:]:
            out.print(f"  then {marked(gate.name)}: {marked(gate.reason)} (lifted by: {marked(gate.lifted_by)})")
    out.print()
    for label, value in _facts(job):
        out.print(f"  [dim]{label:<11}[/] {marked(value)}")
    for warning in job.warnings:
        out.print(f"  [yellow]warning[/]     {marked(warning)}")


def _facts(job: JobView) -> list[tuple[str, str]]:
    attempt = job.attempts[-1]
    rows = [
        ("command", " ".join(_word(word) for word in job.spec.command)),
        ("asks for", f"{job.spec.gpus} GPU{'' if job.spec.gpus == 1 else 's'} of {job.spec.coretype}"),
        ("owner", f"{job.user} in {job.tenant}/{job.project}"),
        ("submitted", f"{job.submitted_at.astimezone():%Y-%m-%d %H:%M:%S}"),
    ]
    if job.pipeline is not None:
        rows.append(("pipeline", f"step {job.pipeline.index + 1} of {job.pipeline.id}"))
    if job.gate is not None and job.gate.position is not None:
        rows.append(("position", str(job.gate.position)))
    if job.attempt > 1:
        rows.append(("attempt", str(job.attempt)))
    if job.backend.ref:
        state = f", {job.backend.raw_state}" if job.backend.raw_state else ""
        rows.append(("backend", f"{job.backend.cluster}: {job.backend.ref}{state}"))
    if job.exit.code is not None or job.exit.signal is not None:
        rows.append(("exit", f"signal {job.exit.signal}" if job.exit.signal else f"code {job.exit.code}"))
    if job.started_at is not None:
        rows.append(("gpu_seconds", job.gpu_seconds))
    if attempt.outputs is not None and attempt.outputs.files:
        files = attempt.outputs.files
        rows.append(
            (
                "outputs",
                f"{files} file{'' if files == 1 else 's'}, {size(attempt.outputs.size_bytes)}: "
                f"tidegate outputs get {job.id}",
            )
        )
    return rows


def _word(word: str) -> str:
    return (
        word if word and all(c.isalnum() or c in "-_./=:,+@%" for c in word) else "'" + word.replace("'", "'\\''") + "'"
    )
