"""`tidegate logs | events`: what a job prints, and what becomes of it, also as it comes."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from services.cli.escapes import json_text, marked, printable_chunks
from services.cli.given import checked
from services.cli.interrupted import says_that_it_goes_on
from services.cli.output import out, state_text, write
from services.cli.session import connect
from services.cli.stack import is_service, stack_logs
from services.cli.waiting import begins, next_attempt
from shared.client.client import Tidegate
from shared.client.views import JobView


def register(app: typer.Typer) -> None:
    app.command("logs", help="Print a job's output, or a service's log of the embedded stack.")(logs)
    app.command("events", help="Print the events of a job, or of everything that you may see.")(events)


def logs(
    target: Annotated[
        str, typer.Argument(help="a job's id, or a service of the embedded stack", metavar="JOB|SERVICE")
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on until the job has ended, through all its attempts")
    ] = False,
    stderr: Annotated[bool, typer.Option("--stderr", help="what it wrote to its standard error")] = False,
    attempt: Annotated[
        int | None, typer.Option(help="of this attempt only", min=1, show_default="the newest one")
    ] = None,
) -> None:
    if is_service(target):
        raise typer.Exit(stack_logs(target, follow=follow))
    job, stream = checked(target), "stderr" if stderr else "stdout"
    with connect() as client, says_that_it_goes_on(job):
        if follow and attempt is None:
            chunks = _of_every_attempt(client, client.job(job), stream)
        else:
            chunks = client.logs(job, stream=stream, follow=follow, attempt=attempt)
        for shown in printable_chunks(chunks) if out.is_terminal else chunks:
            write(shown)


def _of_every_attempt(client: Tidegate, job: JobView, stream: str) -> Iterator[bytes]:
    """The logs of the job's current attempt, then of each that follows, until it has ended."""
    number = job.attempt
    while True:
        yield from client.logs(job.id, stream=stream, follow=True, attempt=number)
        number += 1
        newer = next_attempt(client, job) if number > job.attempt else job
        if newer is None:
            return
        job = newer


def events(
    job: Annotated[
        str | None, typer.Argument(help="the job's id; all of your tenant's jobs where none is given")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on as they come (until the job has ended)")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the API's own objects")] = False,
) -> None:
    if job is None and not follow:
        raise typer.BadParameter("give a job's id, or -f to follow everything as it comes")
    with connect() as client:
        if job is None:
            for event in client.events():
                _print_event(json.loads(event.data), as_json=as_json, with_id=True)
            return
        attempt = 1
        with says_that_it_goes_on(checked(job)):
            for item in _events_of(client, job, follow=follow):
                attempt = _print_attempt(item["job"], attempt, as_json=as_json)
                _print_event(item, as_json=as_json)


def _events_of(client: Tidegate, job: str, *, follow: bool) -> Iterator[dict[str, Any]]:
    if follow:
        yield from (json.loads(event.data) for event in client.events(job=job))
    else:
        yield from client.call("GET", f"/v1/jobs/{job}/events")["items"]


def _print_attempt(job: dict[str, Any], before: int, *, as_json: bool) -> int:
    """A line where another attempt begins; the attempt that it is."""
    number: int = job["attempt"]
    if number > before and not as_json:
        out.print(begins(number, job["attempts"][-1].get("origin", "submit"), job.get("message")))
    return number


def _print_event(event: dict[str, Any], *, as_json: bool, with_id: bool = False) -> None:
    if as_json:
        write(json_text(event) + "\n")
    else:
        job = event["job"]
        active = next((s.get("waiting_on") for s in job.get("stages", ()) if s.get("status") == "active"), None)
        said = active or job.get("message") or ""
        out.print(
            f"{marked(job['id']) + '  ' if with_id else ''}{job['epoch']}-{job['seq']:<3} {marked(job['name']):<16} "
            f"{marked(event['type']):<10} {state_text(job['state'])}  {marked(said)}".rstrip()
        )
