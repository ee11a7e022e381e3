"""`tidegate ls | show`: jobs in a list, and one job or pipeline whole."""

from typing import Annotated, Final

import typer
from rich.text import Text

from services.cli.given import checked, is_pipeline
from services.cli.listing import Listing
from services.cli.output import STATE_STYLES, ago, but_the_state, out, print_json
from services.cli.pipelines import show_pipeline
from services.cli.render import show_job
from services.cli.session import connect
from shared.client.views import JobView
from shared.lifecycle.states import StageStatus, State

Job = Annotated[str, typer.Argument(help="the job's id")]
JobOrPipeline = Annotated[str, typer.Argument(help="the id of a job or a pipeline", metavar="JOB|PIPELINE")]
_WIDE_CELLS: Final = 150
AsJson = Annotated[bool, typer.Option("--json", help="print the API's own objects")]


def register(app: typer.Typer) -> None:
    app.command("ls", help="List jobs, newest first.")(ls)
    app.command("show", help="Show a job with its five stages, or a pipeline with its steps.")(show)


def ls(
    state: Annotated[State | None, typer.Option(help="only jobs in this state", case_sensitive=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="how many")] = 20,
    as_json: AsJson = False,
) -> None:
    with connect() as client:
        if as_json:
            params = {"limit": limit} | ({"state": state.value} if state else {})
            return print_json(client.call("GET", "/v1/jobs", params=params)["items"])
        page = client.jobs(state=state.value if state else None, limit=limit)
    if not page.items:
        out.print("no jobs" + (f" in state {state}" if state else "") + ": `tidegate submit -- CMD` makes one")
        return None
    steps = ["STEP"] if any(job.pipeline for job in page.items) else []
    rows = Listing("ID", "NAME", *steps, "STATE", "GPUS", "SUBMITTED", "WAITS ON / WHY", squeeze="NAME")
    for job in page.items:
        rows.add_row(
            job.id,
            job.name,
            *(_step(job) for _ in steps),
            Text(job.state, STATE_STYLES.get(job.state, "")),
            str(job.spec.gpus),
            ago(job.submitted_at),
            _why(job),
        )
    rows.print()
    if page.next_cursor:
        out.print(f"[dim]older jobs are not shown: --limit {min(limit * 5, 200)}[/]")
    return None


def _step(job: JobView) -> str:
    """The job's place in its pipeline, with the pipeline's id where there is room for it."""
    if job.pipeline is None:
        return ""
    number = str(job.pipeline.index + 1)
    return f"{number} of {job.pipeline.id}" if not out.is_terminal or out.width >= _WIDE_CELLS else number


def _why(job: JobView) -> str:
    if job.ended or job.state is State.PAUSED:
        return "" if job.state is State.SUCCEEDED else but_the_state(job.state, job.message)
    return next((stage.waiting_on or "" for stage in job.stages if stage.status is StageStatus.ACTIVE), "")


def show(job: JobOrPipeline, as_json: AsJson = False) -> None:
    with connect() as client:
        if is_pipeline(job) and as_json:
            print_json(client.call("GET", f"/v1/pipelines/{job}"))
        elif is_pipeline(job):
            show_pipeline(client.pipeline(job))
        elif as_json:
            print_json(client.call("GET", f"/v1/jobs/{checked(job)}"))
        else:
            show_job(client.job(checked(job)))
