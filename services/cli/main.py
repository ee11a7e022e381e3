"""The `tidegate` command. Exit codes: 0 done, 1 the job did not succeed, 2 usage, 3 refused, 4 cannot reach it."""

import os
import sys
from typing import Final

import typer

from services.cli import admin, jobs, outputs, stack, submit
from services.cli.output import err
from shared.client.errors import ClientError, NoServer, Refused, Unavailable

EXIT_FAILED: Final = 1
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
submit.register(app)
jobs.register(app)
outputs.register(app)
stack.register(app)
admin.register(app)


def main() -> None:
    """Run the command; every error that a person can act on is one or two sentences on stderr."""
    try:
        app()
    except ClientError as error:
        err.print("[bold red]error:[/] ", end="")
        err.print(str(error), markup=False)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        err.print("interrupted; the job goes on, `tidegate ls` shows it")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def exit_code(error: ClientError) -> int:
    """Which of the exit codes an error stands for."""
    match error:
        case NoServer() | Unavailable():
            return EXIT_UNREACHABLE
        case Refused():
            return EXIT_REFUSED
        case _:
            return EXIT_FAILED


if __name__ == "__main__":
    main()
