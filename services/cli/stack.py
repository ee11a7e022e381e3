"""`tidegate up | down | restart | ps`, and the logs of its services: the embedded stack on this machine.

`infra.embedded` is imported where it is used: the other commands should not pay for it.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from services.cli.escapes import marked
from services.cli.listing import Listing
from services.cli.output import err, out, print_json
from shared.client.endpoint import home_of
from shared.contracts.subjects import SERVICES

_PARTS = (*SERVICES, "postgres", "nats", "topology", "prepare", "restored", "runner", "supervisor")

_REFUSED = 3


def _a_path(given: str) -> Path:
    if not given:
        raise typer.BadParameter("it is empty, which would be this very folder: name a folder, or leave the option out")
    return Path(given)


HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="the stack's folder; TIDEGATE_HOME or ~/.tidegate where not given",
        parser=_a_path,
        metavar="PATH",
    ),
]


def register(app: typer.Typer) -> None:
    app.command("up", help="Start the embedded stack on this machine.")(up)
    app.command("down", help="Stop the embedded stack; running jobs go on and the next `up` finds them.")(down)
    app.command("restart", help="Restart services one by one, while jobs and requests go on.")(restart)
    app.command("ps", help="Show the embedded stack's processes.")(ps)


def up(
    home: HomeOption = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            help="where the API listens on 127.0.0.1",
            min=1,
            max=65535,
            show_default="the port of last time, else 8420 where it is free",
        ),
    ] = None,
    virtual_gpus: Annotated[
        int | None,
        typer.Option(
            help="hand out N virtual GPUs",
            min=0,
            max=1024,
            show_default="the machine's real GPUs, or 8 virtual ones where it has none",
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option(help="jobs that run at once on this machine", min=1, show_default="64")
    ] = None,
    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="SERVICE=N,…",
            help="1 to 8 processes of a service: api=2,launcher=3 or all=2",
            show_default="one of each",
        ),
    ] = None,
    clusters: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="run jobs also on the Slurm clusters that this file names"),
    ] = None,
    allow_tenants: Annotated[
        bool, typer.Option(help="allow several tenants also without root, where they can read each other's files")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="return once every service answers")] = False,
) -> None:
    from infra.embedded import commands

    with refusals():
        options = commands.Options(
            home=stack_home(home),
            http_port=http_port,
            virtual_gpus=virtual_gpus,
            slots=slots,
            replicas=_replicas(replicas),
            clusters=clusters,
            allow_tenants=allow_tenants,
            detach=detach,
        )
        raise typer.Exit(commands.up(options))


def down(
    home: HomeOption = None,
    kill_jobs: Annotated[bool, typer.Option("--kill-jobs", help="end the running jobs, too")] = False,
) -> None:
    from infra.embedded import commands

    with refusals():
        raise typer.Exit(commands.down(stack_home(home), kill_jobs=kill_jobs))


def restart(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="a process of `tidegate ps`, or a service with all its replicas",
            show_default="all",
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    from infra.embedded import commands

    with refusals():
        raise typer.Exit(commands.restart(stack_home(home), names or []))


def ps(
    home: HomeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a list of objects")] = False,
) -> None:
    from infra.embedded import commands

    with refusals():
        place = stack_home(home)
        processes = commands.ps(place)
    if as_json:
        return print_json(processes)
    if not processes:
        out.print(f"no stack was started in {marked(str(place))}: `tidegate up --detach` starts one")
        return None
    rows = Listing("NAME", "PID", "STATE", "RESTARTS", "STARTED")
    for row in processes:
        pid = "" if row["pid"] is None else str(row["pid"])
        rows.add_row(row["name"], pid, row["state"], str(row["restarts"]), row["started_at"] or "")
    rows.print()
    return None


def is_service(name: str) -> bool:
    """Whether a word names a process of the stack rather than a job."""
    return name in _PARTS or re.sub(r"-[0-9]+$", "", name) in SERVICES


def stack_logs(service: str, *, follow: bool) -> int:
    """Print a service's log; the exit code."""
    from infra.embedded import commands

    with refusals():
        return commands.logs(stack_home(None), service, follow=follow)


def _replicas(given: str | None) -> dict[str, int]:
    from infra.embedded.replicas import ReplicasError, parse

    if given is None:
        return {}
    try:
        return parse(given)
    except ReplicasError as error:
        raise typer.BadParameter(f"--replicas: {error}") from None


def stack_home(given: Path | None) -> Path:
    """The folder that was named, or the usual one."""
    from infra.embedded.commands import HomeRefusedError

    if given is not None:
        return given
    if os.environ.get("TIDEGATE_HOME") == "":
        raise HomeRefusedError("TIDEGATE_HOME is empty: set it to the stack's folder, or unset it for ~/.tidegate")
    try:
        return home_of()
    except RuntimeError:  # pathlib's for a user without a home folder
        raise HomeRefusedError("you have no home folder: name the stack's with --home or TIDEGATE_HOME") from None


@contextmanager
def refusals() -> Iterator[None]:
    """A folder that cannot be a stack's home is told in its sentence, with exit code 3."""
    from infra.embedded.commands import HomeRefusedError

    try:
        yield
    except HomeRefusedError as refusal:
        err.print(f"[bold red]error:[/] {marked(str(refusal))}")
        raise typer.Exit(_REFUSED) from None
