"""`tidegate admin backup | restore`: the embedded stack's database, to a file or folder and back."""

import os
from pathlib import Path
from typing import Annotated

import typer

from services.cli.escapes import marked
from services.cli.output import err
from services.cli.stack import HomeOption, refusals, stack_home

_REFUSED = 3

Place = Annotated[Path, typer.Argument(metavar="FILE_OR_FOLDER")]


def register(admin: typer.Typer) -> None:
    admin.command("backup", help="Copy the embedded stack's database while it works (FILE.tar, .tar.gz or a folder).")(
        backup
    )
    admin.command("restore", help="Put a backup in the place of the database of a stopped embedded stack.")(restore)


def backup(target: Place, home: HomeOption = None) -> None:
    from infra.embedded import backup_commands

    _refuse_elsewhere(home)
    with refusals():
        raise typer.Exit(backup_commands.backup(stack_home(home), target))


def restore(source: Place, home: HomeOption = None) -> None:
    from infra.embedded import backup_commands

    _refuse_elsewhere(home)
    with refusals():
        raise typer.Exit(backup_commands.restore(stack_home(home), source))


def _refuse_elsewhere(home: Path | None) -> None:
    """A server elsewhere has a PostgreSQL that is not ours to copy."""
    if home is not None or not (url := os.environ.get("TIDEGATE_URL")):
        return
    err.print(
        "[bold red]error:[/] this is for the embedded stack of this machine, and TIDEGATE_URL names a server: "
        f"{marked(url)}. How a PostgreSQL of your own is backed up and restored stands in infra/postgres/README.md; "
        "for the stack of this machine give --home"
    )
    raise typer.Exit(_REFUSED)
