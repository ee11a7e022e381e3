"""`tidegate ls | show | logs | events`."""

import json
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from services.cli.escapes import json_text, marked, printable_chunks
from services.cli.given import checked, is_pipeline
from services.cli.interrupted import says_that_it_goes_on
from services.cli.listing import Listing
from services.cli.output import STATE_STYLES, ago, out, print_json, state_text, write
from services.cli.pipelines import show_pipeline
from services.cli.render import show_job
from services.cli.session import connect
from services.cli.stack import is_service, stack_logs
from shared.client.views import JobView
from shared.lifecycle.states import StageStatus, State

Job = Annotated[str, typer.Argument(help="the job's id")]
JobOrPipeline = Annotated[str, typer.Argument(help="the id of a job or a pipeline", metavar="JOB|PIPELINE")]
_WIDE_CELLS: Final = 150
AsJson = Annotated[bool, typer.Option("--json", help="print the API's own objects")]


def register(app: typer.Typer) -> None:
    app.command("ls", help="List jobs, newest first.")(ls)
    app.command("show", help="Show a job with its five stages, or a pipeline with its steps.")(show)
    app.command("logs", help="Print a job's output, or a service's log of the embedded stack.")(logs)
    app.command("events", help="Print the events of a job, or of everything that you may see.")(events)


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
    if job.ended:
        return "" if job.state is State.SUCCEEDED else job.message or ""
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


def logs(
    target: Annotated[
        str, typer.Argument(help="a job's id, or a service of the embedded stack", metavar="JOB|SERVICE")
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job has ended")] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="what it wrote to its standard error")] = False,
) -> None:
    if is_service(target):
        raise typer.Exit(stack_logs(target, follow=follow))
    job = checked(target)
    with connect() as client, says_that_it_goes_on(job):
        chunks = client.logs(job, stream="stderr" if stderr else "stdout", follow=follow)
        for shown in printable_chunks(chunks) if out.is_terminal else chunks:
            write(shown)


def events(
    job: Annotated[
        str | None, typer.Argument(help="the job's id; all of your tenant's jobs where none is given")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on as they come (until the job has ended)")
    ] = False,
    as_json: AsJson = False,
) -> None:
    with connect() as client:
        if job is not None and not follow:
            for item in client.call("GET", f"/v1/jobs/{checked(job)}/events")["items"]:
                _print_event(item, as_json=as_json)
            return
        if job is None and not follow:
            raise typer.BadParameter("give a job's id, or -f to follow everything as it comes")
        if job is None:
            for event in client.events("/v1/events"):
                _print_event(json.loads(event.data), as_json=as_json, with_id=True)
            return
        with says_that_it_goes_on(checked(job)):
            for event in client.events(f"/v1/jobs/{job}/events"):
                _print_event(json.loads(event.data), as_json=as_json)


def _print_event(event: dict[str, Any], *, as_json: bool, with_id: bool = False) -> None:
    if as_json:
        write(json_text(event) + "\n")
    else:
        job = event["job"]
        active = next((s.get("waiting_on") for s in job.get("stages", ()) if s.get("status") == "active"), None)
        said = job.get("message") or active or ""
        out.print(
            f"{marked(job['id']) + '  ' if with_id else ''}{job['epoch']}-{job['seq']:<3} {marked(job['name']):<16} "
            f"{marked(event['type']):<10} {state_text(job['state'])}  {marked(said)}".rstrip()
        )
