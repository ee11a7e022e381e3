"""`tidegate workstation …`: start one, see where it is, get its address, suspend and resume it."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError

from services.cli import limits
from services.cli.escapes import marked
from services.cli.interrupted import says_that_it_goes_on
from services.cli.listing import Listing
from services.cli.output import err, out, print_json, write
from services.cli.session import connect
from services.cli.submit import pair, send_snapshot
from services.cli.waiting import told_since
from services.cli.workstation_shown import agreed, row, show_workstation, standing, why_not_up
from shared.client.client import Tidegate
from shared.client.errors import ClientError
from shared.client.workstations import Workstations, WorkstationView
from shared.contracts.ids import is_id
from shared.contracts.workstations import WorkstationRequest

workstation = typer.Typer(
    help="Workstations: JupyterLab or a program of your own, up while you use it, with its files kept.",
    no_args_is_help=True,
)
_SNOOZE_SECONDS: Final = 1800
_TIME: Final[dict[str, Any]] = {"parser": limits.time_limit, "metavar": "TIME"}
Id = Annotated[str, typer.Argument(help="the workstation's id", metavar="WORKSTATION")]
AsJson = Annotated[bool, typer.Option("--json", help="print the API's own objects")]
UntilUp = Annotated[bool, typer.Option("--wait", help="return when it is up, with its address; exit 1 if it ended")]


def register(app: typer.Typer) -> None:
    app.add_typer(workstation, name="workstation")


@workstation.command("start", context_settings={"allow_interspersed_args": False})
def start(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="its program, after --; it listens on 127.0.0.1:$TIDEGATE_PORT. JupyterLab where none is given",
            metavar="-- CMD",
        ),
    ] = None,
    gpus: Annotated[int, typer.Option(help="GPUs that it holds while it is up", min=0)] = 0,
    coretype: Annotated[str, typer.Option(help="which kind of machine")] = "local",
    idle_suspend: Annotated[
        int | None, typer.Option(help="suspend it once it was idle for so long, such as 30m", **_TIME)
    ] = None,
    max_lifetime: Annotated[
        int | None, typer.Option(help="end it once it was up for so long in all, such as 8h", **_TIME)
    ] = None,
    name: Annotated[str | None, typer.Option(help="a name to find it by")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for its environment; repeatable")] = None,
    directory: Annotated[Path, typer.Option("--dir", help="its first files; a copy of it is sent")] = Path(),
    no_snapshot: Annotated[bool, typer.Option("--no-snapshot", help="send no directory: begin with no files")] = False,
    project: Annotated[str, typer.Option(help="the project it counts for")] = "default",
    keep_prefix: Annotated[
        bool,
        typer.Option(
            "--keep-prefix",
            help="its program expects whole paths, from /v1/workstations/$TIDEGATE_JOB_ID/proxy/ on (JupyterLab does)",
        ),
    ] = False,
    wait: UntilUp = False,
    as_json: AsJson = False,
) -> None:
    """Start a workstation: everything after -- is its command, run in a copy of the working directory."""
    given: dict[str, object] = {
        "command": command or None,
        "gpus": gpus,
        "coretype": coretype,
        "idle_suspend_seconds": idle_suspend,
        "max_lifetime_seconds": max_lifetime,
        "name": name,
        "env": dict(pair(text) for text in env or []),
        "project": project,
        "keeps_prefix": keep_prefix,
    }
    with connect() as client:
        snapshot = None if no_snapshot else send_snapshot(client, directory, (), quiet=as_json)
        view = Workstations(client).start(_request(given | {"snapshot": snapshot}))
        if not as_json:
            out.print(f"started [bold]{marked(view.name)}[/] as {view.id}")
            for line in agreed(view):
                out.print(f"  {line}")
            for warning in view.warnings:
                err.print(f"[yellow]warning:[/] {marked(warning)}")
        if not wait and not as_json:
            out.print(f"  tidegate workstation show {view.id}  [dim]where it is[/]")
            out.print(f"  tidegate workstation url {view.id}   [dim]its address, once it is up[/]")
        _end(client, view, wait=wait, as_json=as_json)


@workstation.command("ls")
def ls(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="how many")] = 20, as_json: AsJson = False
) -> None:
    """List workstations, newest first."""
    with connect() as client:
        if as_json:
            return print_json(client.call("GET", "/v1/workstations", params={"limit": limit})["items"])
        page = Workstations(client).page(limit=limit)
    if not page.items:
        return out.print("no workstations: `tidegate workstation start` makes one")
    rows = Listing("ID", "NAME", "STATE", "GPUS", "STARTED", "NOW", squeeze="NAME")
    for view in page.items:
        rows.add_row(*row(view))
    rows.print()
    if page.next_cursor:
        out.print(f"[dim]older ones are not shown: --limit {min(limit * 5, 200)}[/]")
    return None


@workstation.command("show")
def show(workstation: Id, as_json: AsJson = False) -> None:
    """Show where a workstation is, and when it will be suspended."""
    with connect() as client:
        if as_json:
            print_json(client.call("GET", f"/v1/workstations/{_checked(workstation)}"))
        else:
            show_workstation(Workstations(client).one(_checked(workstation)))


@workstation.command("url")
def url(workstation: Id) -> None:
    """Print an address for a browser: it is good once, for two minutes."""
    with connect() as client:
        known = Workstations(client)
        view = known.one(_checked(workstation))
        if view.phase != "active":
            raise ClientError(f"{view.id} has no address now: {why_not_up(view)}")
        write(known.ticket(view.id) + "\n")


@workstation.command("suspend")
def suspend(
    workstation: Id,
    reason: Annotated[str | None, typer.Option(help="why, for whoever looks at it")] = None,
    as_json: AsJson = False,
) -> None:
    """Suspend it: its files are kept, its GPUs are freed, its meter stands."""
    _ask(workstation, "suspend", {} if reason is None else {"reason": reason}, as_json=as_json)


@workstation.command("resume")
def resume(workstation: Id, wait: UntilUp = False, as_json: AsJson = False) -> None:
    """Bring it up again, with its files where they were."""
    with connect() as client:
        view = Workstations(client).command(_checked(workstation), "resume")
        if not as_json:
            out.print(standing(view))
        _end(client, view, wait=wait, as_json=as_json)


@workstation.command("snooze")
def snooze(
    workstation: Id,
    time: Annotated[
        str | None, typer.Argument(help="from now on, such as 45m or 2h; 30m where none is given", metavar="TIME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put off that it is suspended for being idle."""
    _ask(workstation, "snooze", {"seconds": _SNOOZE_SECONDS if time is None else limits.snooze(time)}, as_json=as_json)


@workstation.command("stop")
def stop(
    workstation: Id,
    force: Annotated[bool, typer.Option("--force", help="kill at once, without a grace")] = False,
    as_json: AsJson = False,
) -> None:
    """End it for good; its files come back as its outputs."""
    _ask(workstation, "stop", {"force": force}, as_json=as_json)


def _ask(workstation: str, action: str, body: dict[str, Any], *, as_json: bool) -> None:
    with connect() as client:
        view = Workstations(client).command(_checked(workstation), action, body)
        if as_json:
            print_json(client.call("GET", f"/v1/workstations/{view.id}"))
        else:
            out.print(standing(view))


def _end(client: Tidegate, view: WorkstationView, *, wait: bool, as_json: bool) -> None:
    """What a command that starts it says last: its address where that is waited for."""
    if wait:
        with says_that_it_goes_on(view.id):
            view = _up(client, view)
    if as_json:
        print_json(client.call("GET", f"/v1/workstations/{view.id}"))
    if wait and view.phase != "active":
        raise ClientError(f"{view.id} is not up: {why_not_up(view)}")
    if wait and not as_json:
        write(Workstations(client).ticket(view.id) + "\n")


def _up(client: Tidegate, view: WorkstationView) -> WorkstationView:
    """The workstation once it is up, is paused, or has ended; what it waits for is said meanwhile."""
    said = ""
    for told, lines in told_since(client, view.id, view):
        for line in lines:
            err.print(line)
        if told.get("phase") in ("active", "suspended"):
            break
        waits = next(
            (stage.get("waiting_on") for stage in told.get("stages", ()) if stage.get("status") == "active"), None
        )
        if waits and waits != said:
            said = waits
            err.print(f"[dim]waits on[/] {marked(waits)}")
    return Workstations(client).one(view.id)


def _request(given: dict[str, object]) -> WorkstationRequest:
    try:
        return WorkstationRequest.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        raise typer.BadParameter(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None


def _checked(workstation: str) -> str:
    if not is_id(workstation) or not workstation.startswith("j"):
        raise typer.BadParameter(
            f"{workstation!r} is no workstation's id: it begins with j and has 27 letters and digits; see "
            "`tidegate workstation ls`"
        )
    return workstation
