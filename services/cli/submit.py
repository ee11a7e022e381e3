"""`tidegate submit`: pack the working directory, send what the server does not have, submit, and follow if asked."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from services.cli import limits, waiting
from services.cli.escapes import marked
from services.cli.follow import finish, follow
from services.cli.interrupted import says_that_it_goes_on
from services.cli.output import err, out, print_json
from services.cli.pipelines import finish_pipeline, follow_pipeline
from services.cli.session import connect
from services.cli.steps import files_can_be_there, not_read, pipeline_of, split
from shared.client.client import Tidegate
from shared.client.errors import Unusable
from shared.client.snapshot import SnapshotError, pack
from shared.client.views import PipelineView
from shared.contracts.spec import JobSpec, SubmitRequest
from shared.lifecycle.pipeline import PipelineWord

_TIME: Final[dict[str, Any]] = {"parser": limits.time_limit, "metavar": "TIME"}
_GRACE: Final[dict[str, Any]] = {"parser": limits.grace, "metavar": "TIME"}


def register(app: typer.Typer) -> None:
    app.command(
        "submit",
        context_settings={"allow_interspersed_args": False},
        help="Submit a job: everything after -- is its command, run in a copy of the working directory.",
    )(submit)


def submit(
    command: Annotated[list[str], typer.Argument(help="the command and its arguments, after --", metavar="-- CMD...")],
    gpus: Annotated[int, typer.Option(help="GPUs that the job holds while it runs", min=0)] = 0,
    inputs: Annotated[
        list[str] | None, typer.Option("--in", help="a file or folder of the directory that must be there; repeatable")
    ] = None,
    outputs: Annotated[
        list[str] | None, typer.Option("--out", help="what to copy back, such as 'model/**'; repeatable")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="a name to find it by; the program's name where none is given")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", help="NAME=VALUE for the job's environment; repeatable")
    ] = None,
    directory: Annotated[Path, typer.Option("--dir", help="the directory to run in; a copy of it is sent")] = Path(),
    no_snapshot: Annotated[bool, typer.Option("--no-snapshot", help="send no directory: run in an empty one")] = False,
    coretype: Annotated[str, typer.Option(help="which kind of machine")] = "local",
    project: Annotated[str, typer.Option(help="the project it counts for")] = "default",
    priority: Annotated[int, typer.Option(min=-100, max=100, help="higher goes first among waiting jobs")] = 0,
    time_limit: Annotated[
        int | None,
        typer.Option(
            "--time-limit",
            help="end it after so long (SIGTERM, killed after the stop grace): 90 (minutes), 30m, 1:30:00, 2-12",
            **_TIME,
        ),
    ] = None,
    warn: Annotated[
        limits.Warn | None,
        typer.Option(
            help="a signal for the command before its time limit, such as USR1@5m; a bare number is seconds",
            parser=limits.warn,
            metavar="SIGNAL@TIME",
        ),
    ] = None,
    stop_grace: Annotated[
        int | None,
        typer.Option(
            help="from SIGTERM to SIGKILL, at a stop and at the time limit: 30s, 5m; a bare number is seconds",
            show_default="10s",
            **_GRACE,
        ),
    ] = None,
    checkpoint_signal: Annotated[
        str, typer.Option(help="what a pause sends, so that it saves its state", parser=limits.signal, metavar="SIGNAL")
    ] = "TERM",
    checkpoint_grace: Annotated[
        int | None,
        typer.Option(
            help="how long it may take for that, such as 2m; a bare number is seconds", show_default="60s", **_GRACE
        ),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            help="automatic retries when it fails by itself", min=0, max=100, show_default="what the server is set to"
        ),
    ] = None,
    then: Annotated[
        list[str] | None,
        typer.Option("--then", help="a command to run next, with the outputs of those before it; repeatable"),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="return when the job has ended; exit 1 if it did not succeed")
    ] = False,
    follow_it: Annotated[
        bool, typer.Option("--follow", "-f", help="like --wait, and show stages and logs live")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the API's job object")] = False,
) -> None:
    """Submit a job."""
    later = [split(text) for text in then or ()]
    files_can_be_there(later, None if no_snapshot else directory, outputs or ())
    warned = limits.warning(warn, time_limit)
    if (sentence := not_read(command)) is not None:
        err.print(f"[yellow]warning:[/] {sentence}")
    with connect() as client:
        snapshot = None if no_snapshot else send_snapshot(client, directory, tuple(inputs or ()), quiet=as_json)
        request = _request(
            {
                "command": command,
                "gpus": gpus,
                "inputs": inputs or [],
                "outputs": outputs or [],
                "env": dict(pair(text) for text in env or []),
                "coretype": coretype,
                "snapshot": snapshot,
                "time_limit_seconds": time_limit,
                "stop_grace_seconds": stop_grace,
                "checkpoint_signal": checkpoint_signal,
                "checkpoint_grace_seconds": checkpoint_grace,
            }
            | warned,
            {"name": name, "project": project, "priority": priority, "retries": retries},
        )
        if later:
            pipeline = client.submit_pipeline(pipeline_of(request, later))
            if not as_json:
                out.print(f"submitted [bold]{marked(pipeline.name)}[/] as {pipeline.id}, {len(pipeline.steps)} steps")
                _say(limits.said(request.spec, request.retries), "each step: ")
            raise typer.Exit(_after_submit(client, pipeline, wait=wait, follow_it=follow_it, as_json=as_json))
        job = client.submit(request)
        if not as_json:
            out.print(f"submitted [bold]{marked(job.name)}[/] as {job.id}")
            _say(limits.said(job.spec, job.retries.budget))
            for warning in job.warnings:
                err.print(f"[yellow]warning:[/] {marked(warning)}")
        if wait or follow_it:
            with says_that_it_goes_on(job.id):
                shown = follow_it and not as_json
                job = follow(client, job.id) if shown else waiting.wait(client, job)
            if as_json:
                print_json(client.call("GET", f"/v1/jobs/{job.id}"))
                raise typer.Exit(0 if job.state == "SUCCEEDED" else 1)
            raise typer.Exit(finish(job, shown=shown))
        if as_json:
            print_json(client.call("GET", f"/v1/jobs/{job.id}"))
        else:
            out.print(
                f"  tidegate show {job.id}     [dim]where it is[/]\n  tidegate logs -f {job.id}  [dim]what it prints[/]"
            )


def _say(lines: list[str], of: str = "") -> None:
    """The limits of a job, as they were understood."""
    for line in lines:
        out.print(f"  {of}{line}")


def _after_submit(client: Tidegate, pipeline: PipelineView, *, wait: bool, follow_it: bool, as_json: bool) -> int:
    """What is said of a pipeline just submitted, and the exit code."""
    if not as_json:
        for warning in dict.fromkeys(warning for step in pipeline.steps for warning in step.warnings):
            err.print(f"[yellow]warning:[/] {marked(warning)}")
    if not wait and not follow_it:
        if as_json:
            print_json(client.call("GET", f"/v1/pipelines/{pipeline.id}"))
        else:
            out.print(f"  tidegate show {pipeline.id}  [dim]its steps, and where it is[/]")
        return 0
    shown = follow_it and not as_json
    with says_that_it_goes_on(pipeline.id):
        ended = follow_pipeline(client, pipeline) if shown else waiting.wait_pipeline(client, pipeline)
    if as_json:
        print_json(client.call("GET", f"/v1/pipelines/{pipeline.id}"))
        return 0 if ended.word is PipelineWord.SUCCEEDED else 1
    return finish_pipeline(ended, shown=shown)


def _request(spec: dict[str, object], rest: dict[str, object]) -> SubmitRequest:
    try:
        return SubmitRequest(spec=JobSpec.model_validate(spec), **{k: v for k, v in rest.items() if v is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        raise typer.BadParameter(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def pair(text: str) -> tuple[str, str]:
    """A variable of `--env`."""
    name, mark, value = text.partition("=")
    if not mark or not name:
        raise typer.BadParameter(f"--env {text!r}: give it as NAME=VALUE")
    return name, value


def send_snapshot(client: Tidegate, directory: Path, inputs: tuple[str, ...], *, quiet: bool) -> str:
    """Pack and upload `directory` unless the server has that very content; the snapshot's digest."""
    if not directory.is_dir():
        raise typer.BadParameter(f"--dir {directory}: there is no such directory")
    root = directory.resolve()
    if root in (Path("/"), Path.home().resolve()):
        raise Unusable(
            f"the working directory {root} would be sent as a whole: go into the job's own directory, "
            "name it with --dir, or send nothing with --no-snapshot"
        )
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=err,
        transient=True,
        disable=quiet or not err.is_terminal,
    )
    try:
        with bar, pack(root, extra=inputs) as packed:
            task = bar.add_task("uploading", total=packed.size_bytes)
            client.upload_snapshot(packed.digest, packed.file, packed.size_bytes, lambda n: bar.advance(task, n))
            return packed.digest
    except SnapshotError as error:
        raise Unusable(str(error)) from None
