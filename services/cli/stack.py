"""`tidegate up | down | ps`, and the logs of its services: the embedded stack on this machine.

`infra.embedded` is imported where it is used: the other commands should not pay for it.
"""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.output import out, print_json, print_table, table
from shared.client.endpoint import home_of
from shared.contracts.subjects import SERVICES

_PARTS = (*SERVICES, "postgres", "nats", "runner", "supervisor")

HomeOption = Annotated[
    Path | None, typer.Option("--home", help="the stack's folder; TIDEGATE_HOME or ~/.tidegate where not given")
]


def register(app: typer.Typer) -> None:
    app.command("up", help="Start the embedded stack on this machine.")(up)
    app.command("down", help="Stop the embedded stack; running jobs go on and the next `up` finds them.")(down)
    app.command("ps", help="Show the embedded stack's processes.")(ps)


def up(
    home: HomeOption = None,
    http_port: Annotated[int | None, typer.Option(help="where the API listens on 127.0.0.1", min=1, max=65535)] = None,
    virtual_gpus: Annotated[int | None, typer.Option(help="hand out N virtual GPUs", min=0, max=1024)] = None,
    slots: Annotated[int | None, typer.Option(help="jobs that run at once on this machine", min=1)] = None,
    allow_tenants: Annotated[
        bool, typer.Option(help="allow several tenants also without root, where they can read each other's files")
    ] = False,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="return once every service answers")] = False,
) -> None:
    from infra.embedded import commands

    options = commands.Options(
        home=home or home_of(),
        http_port=http_port,
        virtual_gpus=virtual_gpus,
        slots=slots,
        allow_tenants=allow_tenants,
        detach=detach,
    )
    raise typer.Exit(commands.up(options))


def down(
    home: HomeOption = None,
    kill_jobs: Annotated[bool, typer.Option("--kill-jobs", help="end the running jobs, too")] = False,
) -> None:
    from infra.embedded import commands

    raise typer.Exit(commands.down(home or home_of(), kill_jobs=kill_jobs))


def ps(
    home: HomeOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a list of objects")] = False,
) -> None:
    from infra.embedded import commands

    processes = commands.ps(home or home_of())
    if as_json:
        return print_json(processes)
    if not processes:
        out.print(f"no stack was started in {home or home_of()}: `tidegate up --detach` starts one")
        return None
    rows = table("NAME", "PID", "STATE", "RESTARTS", "STARTED")
    for row in processes:
        pid = "" if row["pid"] is None else str(row["pid"])
        rows.add_row(row["name"], pid, row["state"], str(row["restarts"]), row["started_at"] or "")
    print_table(rows)
    return None


def is_service(name: str) -> bool:
    """Whether a word names a process of the stack rather than a job."""
    return name in _PARTS


def stack_logs(service: str, *, follow: bool) -> int:
    """Print a service's log; the exit code."""
    from infra.embedded import commands

    return commands.logs(home_of(), service, follow=follow)
