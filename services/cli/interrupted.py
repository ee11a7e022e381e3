"""What ends the watching of a job only, Ctrl-C or a server that does not come back: it is said how to look again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from services.cli.output import err
from shared.client.errors import ServerGone

EXIT_INTERRUPTED: Final = 130


@contextmanager
def says_that_it_goes_on(watched: str) -> Iterator[None]:
    """Turn Ctrl-C into a sentence about the job or pipeline, and exit code 130; add one to a server's that is gone."""
    again = f"tidegate show {watched}" if watched.startswith("p") else f"tidegate logs -f {watched}"
    try:
        yield
    except ServerGone as gone:
        raise ServerGone(f"{gone}; {watched} goes on without this command: `{again}` looks at it again") from None
    except KeyboardInterrupt:
        err.print(f"interrupted: this command ended, {watched} did not")
        if watched.startswith("p"):
            err.print(f"  {again}     [dim]its steps, and where it is[/]")
        else:
            err.print(f"  {again}  [dim]what it prints[/]")
        err.print(f"  tidegate stop {watched}     [dim]ends it[/]")
        raise typer.Exit(EXIT_INTERRUPTED) from None
