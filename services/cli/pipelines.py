"""`tidegate pipelines`, and a pipeline on the screen: its word, its steps, following it, stopping it."""

from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.text import Text

from services.cli.escapes import marked
from services.cli.evidence import when
from services.cli.follow import follow
from services.cli.listing import Listing
from services.cli.output import STATE_STYLES, ago, but_the_state, duration, err, out, print_json
from services.cli.session import connect
from services.cli.waiting import wait_pipeline
from shared.client.client import Tidegate
from shared.client.views import PipelineView, StepView
from shared.lifecycle.pipeline import PipelineWord
from shared.lifecycle.states import State

_STYLE_OF: Final = {
    PipelineWord.RUNNING: "RUNNING",
    PipelineWord.PAUSED: "PAUSED",
    PipelineWord.QUEUED: "QUEUED",
    PipelineWord.SUCCEEDED: "SUCCEEDED",
    PipelineWord.PARTIAL: "FAILED",
    PipelineWord.STOPPED: "STOPPED",
    PipelineWord.FAILED: "FAILED",
}


def register(app: typer.Typer) -> None:
    app.command("pipelines", help="List pipelines (submit --then), newest first.")(pipelines)


def pipelines(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, help="how many")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="print the API's own objects")] = False,
) -> None:
    with connect() as client:
        if as_json:
            return print_json(client.call("GET", "/v1/pipelines", params={"limit": limit})["items"])
        page = client.pipelines(limit=limit)
    if not page.items:
        out.print("no pipelines: `tidegate submit --then CMD -- CMD` makes one")
        return None
    rows = Listing("ID", "NAME", "STATUS", "DONE", "SUBMITTED", "STEP / WHY", squeeze="NAME")
    for item in page.items:
        rows.add_row(
            item.id,
            item.name,
            Text(item.word, _style(item.word)),
            f"{sum(step.state is State.SUCCEEDED for step in item.steps)}/{len(item.steps)}",
            ago(item.submitted_at),
            _why(item),
        )
    rows.print()
    if page.next_cursor:
        out.print(f"[dim]older pipelines are not shown: --limit {min(limit * 5, 100)}[/]")
    return None


def show_pipeline(pipeline: PipelineView) -> None:
    """Its word, why it did not succeed, and a line per step."""
    out.print(f"[bold]{marked(pipeline.name)}[/]  {pipeline.id}  {word_text(pipeline.word)}")
    if pipeline.message:
        out.print(f"  {marked(pipeline.message)}")
    out.print()
    rows = Listing("STEP", "NAME", "STATE", "RUN TIME", "JOB", "WAITS ON / WHY", squeeze="NAME")
    for step in pipeline.steps:
        rows.add_row(
            str(step.index + 1),
            step.name,
            Text(step.state, STATE_STYLES.get(step.state, "")),
            run_time(step, datetime.now(UTC)),
            step.job,
            step.waiting_on or ("" if step.state is State.SUCCEEDED else but_the_state(step.state, step.message)),
        )
    rows.print()
    out.print()
    out.print(f"  [dim]owner      [/] {marked(f'{pipeline.user} in {pipeline.tenant}/{pipeline.project}')}")
    out.print(f"  [dim]submitted  [/] {when(pipeline.submitted_at)}")
    if possible := [name for name, action in pipeline.actions.items() if action.allowed]:
        out.print(f"  [dim]possible   [/] {marked(', '.join(possible))}")


def follow_pipeline(client: Tidegate, pipeline: PipelineView, *, again: bool = False) -> PipelineView:
    """Print each step's stages and output as they come; the finished pipeline. A step never reached is not followed,
    nor one that had succeeded before; with `again` nothing of attempts before the one that has just begun is told."""
    for step in pipeline.steps:
        if step.state is State.SUCCEEDED:
            continue
        out.print(f"step {step.index + 1}/{len(pipeline.steps)} [bold]{marked(step.name)}[/]  {step.job}")
        # What became of a later one while it waited is told no more.
        since = client.job(step.job, patient=True) if step.index or again else None
        if follow(client, step.job, since=since).state is not State.SUCCEEDED:
            break
    return wait_pipeline(client, pipeline)


def finish_pipeline(pipeline: PipelineView, *, shown: bool) -> int:
    """The exit code of a command that waited for a pipeline: 0 where it succeeded, else 1 with the reason."""
    if pipeline.word is PipelineWord.SUCCEEDED:
        if not shown:
            show_pipeline(pipeline)
        return 0
    said = f": {marked(pipeline.message)}" if pipeline.message else ""
    err.print(f"{word_text(pipeline.word)}{said}")
    for step in pipeline.steps:
        if step.end_reason == "upstream_failed":
            err.print(f"  step {marked(step.name)} was not reached")
    hint = next((step.hint for step in pipeline.steps if step.state is not State.SUCCEEDED), None)
    if hint:
        err.print(f"what to do: {marked(hint)}")
    if (retry := pipeline.actions.get("retry")) is not None and retry.allowed:
        err.print(f"then again, from the step that did not succeed: tidegate retry {pipeline.id}")
    return 1


def word_text(word: PipelineWord) -> str:
    """A pipeline's word in its colour."""
    return f"[{_style(word)}]{word}[/]"


def _style(word: PipelineWord) -> str:
    return STATE_STYLES[_STYLE_OF[word]]


def _why(pipeline: PipelineView) -> str:
    if pipeline.message:
        return pipeline.message
    step = next((step for step in pipeline.steps if not step.ended), None)
    return "" if step is None else f"{step.name}: {step.waiting_on or step.message or step.state}"


def run_time(step: StepView, now: datetime) -> str:
    """How long its command ran or has run; nothing of one that did not start."""
    if step.started_at is None:
        return ""
    return duration(((step.command_ended_at or step.finished_at or now) - step.started_at).total_seconds())
