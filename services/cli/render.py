"""A job on the screen: its head line, its five stages, what it waits on, and what came out of it."""

from datetime import UTC, datetime
from typing import Final

from services.cli import limits
from services.cli.escapes import marked
from services.cli.evidence import clock, when
from services.cli.history import MARKS, show_attempts, stage_time
from services.cli.output import out, size, state_text
from services.cli.waiting import ORIGINS
from services.cli.wording import permitted
from shared.client.views import JobView
from shared.contracts.spec import JobSpec
from shared.lifecycle.explain import idle_rule
from shared.lifecycle.record import Stage
from shared.lifecycle.states import ACTIVE, Desired, StageStatus, State

_NAME_CELLS: Final = 17


def stage_line(stage: Stage) -> str:
    """One stage: mark, name, how long, and what it waits on while it is active."""
    mark, style = MARKS[stage.status]
    name = stage.name.value.replace("_", " ")
    line = f"  [{style}]{mark} {name}[/]{'':{_NAME_CELLS - len(name)}} {stage_time(stage):>10}"
    if stage.status is StageStatus.ACTIVE and stage.waiting_on:
        line += f"   waits on {marked(stage.waiting_on)}"
    return line.rstrip()


def show_job(job: JobView) -> None:
    """Everything that a person asks of a job, on one screen."""
    out.print(
        f"[bold]{marked(job.name)}[/]  {job.id}  {state_text(job.state)}"
        + (f", {job.phase.replace('_', ' ')}" if job.phase else "")
    )
    if job.message:
        out.print(f"  {marked(job.message)}")
    if hint := permitted(job.hint, job.actions):
        out.print(f"  [dim]what to do:[/] {marked(hint)}")
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
    show_attempts(job)


def _facts(job: JobView) -> list[tuple[str, str]]:
    attempt = job.attempts[-1]
    rows = [
        ("command", " ".join(_word(word) for word in job.spec.command)),
        ("asks for", asked_for(job.spec)),
        ("owner", f"{job.user} in {job.tenant}/{job.project}"),
        ("submitted", when(job.submitted_at)),
    ]
    if job.pipeline is not None:
        rows.append(("pipeline", f"step {job.pipeline.index + 1} of {job.pipeline.id}"))
    if job.gate is not None and job.gate.position is not None:
        rows.append(("in line", f"place {job.gate.position}"))
    rows += [("limits", line) for line in limits.said(job.spec, None, defaults=not job.ended)]
    if (rule := idle_rule(job.workstation, datetime.now(UTC))) is not None and not job.ended:
        rows.append(("limits", rule))
    rows += _wishes(job)
    if job.attempt > 1:
        rows.append(("attempt", f"{job.attempt}, {ORIGINS[attempt.origin]}"))
    if (retried := _retries(job)) is not None:
        rows.append(("retries", retried))
    if job.backend.ref:
        state = f", {job.backend.raw_state}" if job.backend.raw_state else ""
        rows.append(("backend", f"{job.backend.cluster}: {job.backend.ref}{state}"))
    if job.exit.code is not None or job.exit.signal is not None:
        rows.append(("exit", f"signal {job.exit.signal}" if job.exit.signal else f"code {job.exit.code}"))
    if job.started_at is not None:
        rows.append(("GPU seconds", job.gpu_seconds))
    if attempt.outputs is not None and attempt.outputs.files:
        files = attempt.outputs.files
        rows.append(
            (
                "outputs",
                f"{files} file{'' if files == 1 else 's'}, {size(attempt.outputs.size_bytes)}: "
                f"tidegate outputs get {job.id}",
            )
        )
    possible = [name for name, action in job.actions.items() if action.allowed]
    if possible:
        rows.append(("possible", ", ".join(possible)))
    return rows


def asked_for(spec: JobSpec) -> str:
    """What of a cluster."""
    gpus = {0: "no GPUs", 1: "1 GPU"}.get(spec.gpus, f"{spec.gpus} GPUs")
    return f"{gpus}, coretype {spec.coretype}"


def _wishes(job: JobView) -> list[tuple[str, str]]:
    """Who holds it, and who asked for what is not so yet."""
    rows, day = [], job.submitted_at.astimezone(UTC).date()
    if job.hold is not None:
        by = f"{'an admin, ' if job.hold.by_admin else ''}{job.hold.actor}"
        rows.append(("held", f"by {by} at {clock(job.hold.at, day)}: {job.hold.reason}"))
    if job.wish is not None and job.state in ACTIVE:
        what = "a stop" if job.desired_state == Desired.STOPPED else "a pause"
        how = "at once" if job.wish.force else ""
        said = ", ".join(part for part in (how, job.wish.reason or "") if part)
        rows.append(
            ("asked for", f"{what} by {job.wish.actor} at {clock(job.wish.at, day)}" + (f" ({said})" if said else ""))
        )
    return rows


def _retries(job: JobView) -> str | None:
    """How often it was tried again, and what is left of the budgets; None where there is nothing to say."""
    had = job.retries
    if not had.count:
        return f"none so far; up to {had.budget} if it fails by itself" if had.budget and not job.ended else None
    parts = [
        f"{had.used} of {had.budget} automatic",
        f"{had.infrastructure_used} of {had.infrastructure_budget} after the infrastructure's faults",
        f"{had.by_hand} of {had.by_hand_budget} by hand",
    ]
    return f"{had.count}: " + ", ".join(parts)


def _word(word: str) -> str:
    return (
        word if word and all(c.isalnum() or c in "-_./=:,+@%" for c in word) else "'" + word.replace("'", "'\\''") + "'"
    )
