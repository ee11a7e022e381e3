"""`tidegate outputs [ls] | get`: what came back from a job."""

import os
import re
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from services.cli.escapes import marked, printable
from services.cli.given import is_pipeline
from services.cli.listing import Listing
from services.cli.output import err, out, print_json, size
from services.cli.session import connect
from shared.client.errors import ClientError, Unusable
from shared.contracts.ids import is_id

_NOT_IN_FOLDER_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")


def register(app: typer.Typer) -> None:
    app.command("outputs", help="List what came back from a job; `outputs get JOB [PATH…]` fetches it.")(outputs)


def outputs(
    words: Annotated[list[str], typer.Argument(help="[ls|get] JOB [PATH…]", metavar="[ls|get] JOB [PATH...]")],
    to: Annotated[
        Path | None, typer.Option("--to", help="where to put the files; ./NAME-outputs where not given")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest")] = False,
) -> None:
    action, *rest = words if words[0] in ("ls", "get") else ["ls", *words]
    if rest and is_pipeline(rest[0]):
        raise typer.BadParameter(
            f"{rest[0]} is a pipeline: give the job of a step; `tidegate show {rest[0]}` lists them"
        )
    if not rest or not is_id(rest[0]):
        given = rest[0] if rest else "nothing"
        raise typer.BadParameter(f"give a job's id after {action!r}, not {given!r}; see `tidegate ls`")
    if action == "get":
        fetch(rest[0], rest[1:], to, as_json=as_json)
    else:
        listing(rest[0], as_json=as_json)


def listing(job: str, *, as_json: bool) -> None:
    with connect() as client:
        if as_json:
            return print_json(client.call("GET", f"/v1/jobs/{job}/outputs"))
        manifest = client.outputs(job)
        attempt = client.job(job).attempt
    rows = Listing("PATH", "SIZE", "SHA256")
    for file in manifest.files:
        is_folder = file.kind == "directory"
        rows.add_row(file.path + "/" * is_folder, "" if is_folder else size(file.size_bytes), file.sha256[:19])
    rows.print()
    if manifest.attempt != attempt:
        err.print(f"as attempt {manifest.attempt} left them: attempt {attempt} has brought nothing back")
    for problem in manifest.problems:
        err.print(f"not among them: {marked(problem)}")
    return None


def fetch(job: str, paths: list[str], to: Path | None, *, as_json: bool) -> None:
    """Fetch all outputs, or those named (a folder's name fetches what is in it)."""
    with connect() as client:
        manifest = client.outputs(job)
        files = [file for file in manifest.files if not paths or any(_under(file.path, path) for path in paths)]
        missing = [path for path in paths if not any(_under(file.path, path) for file in manifest.files)]
        if missing:
            raise typer.BadParameter(
                f"{printable(', '.join(missing))}: not among its outputs; see `tidegate outputs {job}`"
            )
        root = to or Path(folder_name(client.job(job).name))
        if os.path.lexists(root) and not root.is_dir():
            raise Unusable(f"{str(root)!r} is not a folder: name another place for the files with --to")
        total = sum(file.size_bytes for file in files)
        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=err,
            transient=True,
            disable=as_json or not err.is_terminal,
        )
        with bar:
            task = bar.add_task("downloading", total=total)
            try:
                got = [client.download_output(job, file, root, lambda n: bar.advance(task, n)) for file in files]
            except OSError as error:
                where = error.filename or str(root)
                raise ClientError(
                    f"{where!r} cannot be written: {error.strerror}; name another place with --to"
                ) from None
    if as_json:
        return print_json([str(path) for path in got])
    for path in got:
        out.print(printable(str(path)), markup=False)
    return None


def folder_name(job_name: str) -> str:
    """`NAME-outputs`, one folder name whatever the job is called."""
    return (_NOT_IN_FOLDER_NAMES.sub("-", job_name).lstrip(".-") or "job") + "-outputs"


def _under(path: str, asked: str) -> bool:
    return path == asked or path.startswith(asked.rstrip("/") + "/")
