"""Ctrl-C while a job is watched ends the watching only; who pressed it learns how to look again and how to stop it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from services.cli.output import err

EXIT_INTERRUPTED: Final = 130


@contextmanager
def says_that_it_goes_on(watched: str) -> Iterator[None]:
    """Turn Ctrl-C into a sentence about the job or pipeline, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(f"interrupted: this command ended, {watched} did not")
        if watched.startswith("p"):
            err.print(f"  tidegate show {watched}     [dim]its steps, and where it is[/]")
        else:
            err.print(f"  tidegate logs -f {watched}  [dim]what it prints[/]")
        err.print(f"  tidegate stop {watched}     [dim]ends it[/]")
        raise typer.Exit(EXIT_INTERRUPTED) from None
