"""`tidegate admin backup` and `restore`, for the command line to call: plain words out, exit codes back."""

import sys
from collections.abc import Callable
from pathlib import Path

from infra.embedded import backup as taking
from infra.embedded import restore as returning
from infra.embedded.archive import BackupError
from infra.embedded.binaries import ProgramMissingError
from infra.embedded.home import Home
from infra.embedded.postgres import PostgresError
from infra.embedded.serve import DONE, FAILED, REFUSED


def backup(home: Path, target: Path) -> int:
    """Copy the running stack's database to a new file or folder. 0 done; 1 it failed; 3 refused, as said."""
    place = Home.at(home)
    return _ended("backup", lambda: taking.backup(place, target.absolute(), print))


def restore(home: Path, source: Path) -> int:
    """Put a backup in the place of a stopped stack's database. 0 done; 1 it failed; 3 refused, as said."""
    place = Home.at(home)
    return _ended("restore", lambda: returning.restore(place, source.absolute(), print))


def _ended(name: str, work: Callable[[], object]) -> int:
    try:
        work()
    except (BackupError, ProgramMissingError, PostgresError) as error:
        return _complain(name, str(error), REFUSED)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _complain(name, f"{error.filename}: {error.strerror}" if error.filename else str(error), FAILED)
    return DONE


def _complain(name: str, sentence: str, code: int) -> int:
    print(f"tidegate admin {name}: {sentence}", file=sys.stderr)
    return code
