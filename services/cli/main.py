"""The `tidegate` command.

Exit codes: 0 done, 1 it failed, or the job did not succeed, 2 usage, 3 refused, 4 cannot reach the server.
"""

import sys
from importlib.metadata import version
from typing import Annotated, Final

import typer

from services.cli import (
    admin,
    backup,
    commands,
    explain,
    jobs,
    outputs,
    pipelines,
    stack,
    streams,
    submit,
    workstation,
)
from services.cli.escapes import marked
from services.cli.output import err, out
from services.cli.wording import in_commands
from shared.client.errors import ClientError, NoServer, Refused, Unavailable, Unusable

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REFUSED: Final = 3
EXIT_UNREACHABLE: Final = 4

app = typer.Typer(
    name="tidegate",
    help="Hold, validate, launch, watch and meter jobs on somebody else's cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        out.print(f"tidegate {version('tidegate')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[  # shown by its callback
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


submit.register(app)
jobs.register(app)
explain.register(app)
streams.register(app)
commands.register(app)
pipelines.register(app)
outputs.register(app)
workstation.register(app)
stack.register(app)
admin.register(app)
backup.register(admin.admin)


def main() -> None:
    """Run the command; every error that a person can act on is one or two sentences on stderr."""
    try:
        app()
    except ClientError as error:
        _say(str(error))
        sys.exit(exit_code(error))
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        sys.exit(EXIT_FAILED)


def _say(sentence: str) -> None:
    err.print(f"[bold red]error:[/] {marked(in_commands(sentence))}")


def exit_code(error: ClientError) -> int:
    """Which of the exit codes an error stands for."""
    match error:
        case NoServer() | Unavailable():
            return EXIT_UNREACHABLE
        case Refused():
            return EXIT_REFUSED
        case Unusable():
            return EXIT_USAGE
        case _:
            return EXIT_FAILED


if __name__ == "__main__":
    main()
