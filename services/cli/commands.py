"""`tidegate stop | pause | resume | retry | delete | hold | release`: what a person may ask of jobs and pipelines."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from services.cli import limits
from services.cli.asking import Asked, ask, end_of
from services.cli.follow import finish, follow
from services.cli.given import checked, checked_any, is_pipeline
from services.cli.interrupted import says_that_it_goes_on
from services.cli.output import out, print_json
from services.cli.pipelines import finish_pipeline, follow_pipeline
from services.cli.session import connect
from services.cli.waiting import ended, paused_or_ended
from shared.client.client import Tidegate
from shared.client.views import JobView, PipelineView

Ids = Annotated[list[str], typer.Argument(help="ids of jobs or pipelines", metavar="JOB|PIPELINE...")]
Jobs = Annotated[list[str], typer.Argument(help="ids of jobs", metavar="JOB...")]
AsJson = Annotated[
    bool, typer.Option("--json", help="print the API's own objects (a list where several ids are given)")
]
WaitForEnd = Annotated[bool, typer.Option("--wait", help="return when it has ended; exit 1 if it did not succeed")]

Follow = Annotated[bool, typer.Option("--follow", "-f", help="like --wait for one, and show stages and logs live")]


def register(app: typer.Typer) -> None:
    app.command("stop", help="Stop a job, or all steps of a pipeline: outputs so far are copied back.")(stop)
    app.command("pause", help="Pause a job or a pipeline: it saves its state, its GPUs are freed.")(pause)
    app.command("resume", help="Go on with what is paused, through every gate, with its outputs so far.")(resume)
    app.command("retry", help="Try again what failed or was stopped, with its outputs so far.")(retry)
    app.command("delete", help="Forget what has ended: its row, its outputs, its logs.")(delete)
    app.command("hold", help="Hold a waiting job back until it is released.")(hold)
    app.command("release", help="Let a held job go on.")(release)


def stop(
    ids: Ids,
    force: Annotated[bool, typer.Option("--force", help="kill at once, without a grace")] = False,
    grace: Annotated[
        int | None,
        typer.Option(
            help="from SIGTERM to SIGKILL: 30s, 5m; a bare number is seconds",
            parser=limits.stop_grace,
            metavar="TIME",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="return when it has ended")] = False,
    as_json: AsJson = False,
) -> None:
    if force and grace is not None:
        raise typer.BadParameter("--force kills at once, without a grace: give --force or --grace, not both")
    body = {"force": force} | ({} if grace is None else {"grace_seconds": grace})
    _act(ids, Asked("stop", body, until=ended if wait else None), as_json=as_json)


def pause(
    ids: Ids,
    reason: Annotated[str | None, typer.Option(help="why, for whoever looks at it")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="return when it is paused; exit 1 if it ended before")] = False,
    as_json: AsJson = False,
) -> None:
    body = {} if reason is None else {"reason": reason}
    _act(ids, Asked("pause", body, until=paused_or_ended if wait else None), as_json=as_json)


def resume(ids: Ids, wait: WaitForEnd = False, follow_it: Follow = False, as_json: AsJson = False) -> None:
    _begin(ids, Asked("resume", {}, until=ended if wait else None), follow_it=follow_it, as_json=as_json)


def retry(
    ids: Ids,
    force: Annotated[bool, typer.Option("--force", help="also where a lost attempt may still run somewhere")] = False,
    wait: WaitForEnd = False,
    follow_it: Follow = False,
    as_json: AsJson = False,
) -> None:
    asked = Asked("retry", {"force": True} if force else {}, until=ended if wait else None)
    _begin(ids, asked, follow_it=follow_it, as_json=as_json)


def hold(
    jobs: Jobs, reason: Annotated[str, typer.Option(help="why")] = "held by hand", as_json: AsJson = False
) -> None:
    _act(jobs, Asked("hold", {"reason": reason}, said=f"held: {reason}"), as_json=as_json, check=checked)


def release(jobs: Jobs, as_json: AsJson = False) -> None:
    _act(jobs, Asked("release", {}, said="released"), as_json=as_json, check=checked)


def delete(
    ids: Ids,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask, on a terminal")] = False,
    as_json: AsJson = False,
) -> None:
    for given in ids:
        checked_any(given)
    if not yes and on_a_terminal():
        what = ids[0] if len(ids) == 1 else f"{len(ids)} jobs and pipelines"
        if not typer.confirm(f"delete {what}, with outputs and logs?"):
            out.print("nothing was deleted")
            raise typer.Exit(1)
    with connect() as client:
        gone, code = ask(ids, lambda one: _delete(client, one))
    if as_json:
        print_json(gone[0] if len(ids) == 1 else gone)
    else:
        for one in gone:
            out.print(f"{one['id']} deleted")
    raise typer.Exit(code)


def on_a_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty() and out.is_terminal


def _delete(client: Tidegate, given: str) -> dict[str, Any]:
    client.call("DELETE", f"/v1/{'pipelines' if is_pipeline(given) else 'jobs'}/{given}")
    return {"id": given, "deleted": True}


def _begin(ids: Sequence[str], asked: Asked, *, follow_it: bool, as_json: bool) -> None:
    """Ask, and where that is wanted show what becomes of the next attempt of the one job, or of a pipeline's steps."""
    if not follow_it or as_json:
        return _act(ids, replace(asked, until=ended) if follow_it else asked, as_json=as_json)
    if len(ids) > 1:
        raise typer.BadParameter(f"--follow shows one, and {len(ids)} were given: --wait waits for all")
    with connect() as client, says_that_it_goes_on(checked_any(ids[0])):
        answer = asked.of(client, ids[0])
        out.print(asked.line(answer))
        if is_pipeline(ids[0]):
            ended_one = follow_pipeline(client, PipelineView.model_validate(answer), again=True)
            raise typer.Exit(finish_pipeline(ended_one, shown=True))
        raise typer.Exit(finish(follow(client, ids[0], since=JobView.model_validate(answer)), shown=True))


def _act(ids: Sequence[str], asked: Asked, *, as_json: bool, check: Callable[[str], str] = checked_any) -> None:
    for given in ids:
        check(given)
    with connect() as client:
        answers, code = ask(ids, lambda one: asked.of(client, one))
        if not as_json:
            for answer in answers:
                out.print(asked.line(answer))
        if asked.until is not None:
            answers, all_well = end_of(client, asked, answers, shown=not as_json)
            code = code or (0 if all_well else 1)
    if as_json:
        print_json(answers[0] if len(ids) == 1 else answers)
    raise typer.Exit(code)
