"""`tidegate explain JOB`: on one screen why a job is where it is, what was seen, what comes next, and what it cost."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from services.cli.escapes import marked
from services.cli.evidence import Told, clock, seen_lines
from services.cli.given import checked, is_pipeline
from services.cli.jobs import JobOrPipeline
from services.cli.output import ago, duration, out, print_json, state_text
from services.cli.pipelines import word_text
from services.cli.session import connect
from shared.client.views import PipelineView, StepView
from shared.lifecycle.states import State

_LABEL_CELLS: Final = 6
_MOST_SEEN: Final = 16
"""So that it is one screen; `show` has the rest."""


def register(app: typer.Typer) -> None:
    app.command("explain", help="Say why a job is where it is, what was seen, what comes next, and what it cost.")(
        explain
    )


def explain(
    job: JobOrPipeline,
    as_json: Annotated[bool, typer.Option("--json", help="print the API's own object")] = False,
) -> None:
    head = []
    with connect() as client:
        if is_pipeline(job):
            pipeline = client.pipeline(job)
            step = step_of(pipeline)
            job = step.job
            place = f"step {step.index + 1} of {len(pipeline.steps)} of"
            head = [f"{place} [bold]{marked(pipeline.name)}[/]  {pipeline.id}  {word_text(pipeline.word)}"]
        told = client.call("GET", f"/v1/jobs/{checked(job)}/explain")
    if as_json:
        return print_json(told)
    now = datetime.now(UTC)
    for line in head:
        out.print(line, soft_wrap=not out.is_terminal)
    for line in lines_of(told, now):
        out.print(line, soft_wrap=not out.is_terminal)
    return None


def step_of(pipeline: PipelineView) -> StepView:
    """The step that says why a pipeline is where it is: the first that has not succeeded, else the last."""
    kept = [step for step in pipeline.steps if step.deleted_at is None]
    if not kept:
        raise typer.BadParameter(f"every step of {pipeline.id} was deleted: `tidegate show {pipeline.id}` has the rest")
    return next((step for step in kept if step.state is not State.SUCCEEDED), kept[-1])


def lines_of(told: dict[str, Any], now: datetime) -> list[str]:
    """The screen."""
    name = f"[bold]{marked(told['name'])}[/]  " if told.get("name") else ""
    lines = [f"{name}{marked(str(told['job']))}  {state_text(told['state'])}", ""]
    lines.append(_row("why", told["why"]))
    following = told.get("next") or {"what": "nothing"}
    lines.append(_row("next", following["what"] + _when(following.get("at"), now)))
    if following.get("who"):
        lines.append(_row("by", following["who"]))
    lines.append(_row("cost", _cost(told["cost"])))
    return lines + list(_evidence(told, now))


def _evidence(told: dict[str, Any], now: datetime) -> Iterator[str]:
    """The newest of what was seen, with a line where another attempt begins."""
    every = told.get("evidence") or ()
    if every:
        yield ""
        more = (
            f"; {len(every) - _MOST_SEEN} before it are in: tidegate show {told['job']}"
            if len(every) > _MOST_SEEN
            else ""
        )
        yield f"  [dim]seen{marked(more)}[/]"
    newest, attempt = every[-_MOST_SEEN:], 1
    lines = seen_lines([_told(seen) for seen in newest], told["job"], now.astimezone(UTC).date())
    for seen, line in zip(newest, lines, strict=True):
        if seen.get("attempt", 1) != attempt:
            attempt = seen["attempt"]
            yield f"  [dim]attempt {attempt}[/]"
        yield f"  {line}"


def _told(seen: dict[str, Any]) -> Told:
    where, who, what = seen.get("where"), seen["seen_by"], seen["what"]
    on = "" if where is None or where in who or where in what else f" (on {where})"
    return Told(datetime.fromisoformat(seen["at"]), who, what + on)


def _row(label: str, value: str) -> str:
    return f"  [dim]{label:<{_LABEL_CELLS}}[/] {marked(value)}"


def _when(given: str | None, now: datetime) -> str:
    if given is None:
        return ""
    at = datetime.fromisoformat(given)
    shown = clock(at, now.astimezone(UTC).date())
    if at <= now:
        return f", due at {shown} ({ago(at, now)})"
    return f", at {shown} (in {duration((at - now).total_seconds())})"


def _cost(cost: dict[str, Any]) -> str:
    notes = []
    if float(cost.get("not_billable_gpu_seconds") or 0):
        notes.append(f"{cost['not_billable_gpu_seconds']} of them not billed")
    if cost.get("estimated"):
        notes.append("estimated: not every end was seen")
    return f"{cost['gpu_seconds']} GPU seconds" + (f" ({'; '.join(notes)})" if notes else "")
