"""Until when sbatch may still create a job of an attempt: noted in its directory before each call.

Whatever becomes of the call and of who made it, every replica knows then that there may be a job, and since when none
can come any more.
"""

import contextlib
import os
from datetime import UTC, datetime
from typing import Final

from shared.backends.local.files import read_record, write_record
from shared.backends.slurm.layout import environment_name

_NAME: Final = "asked.json"
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def note(attempt_directory: str, token: str, over_at: datetime) -> None:
    """This call of sbatch is over at `over_at` at the latest. Durable when this returns."""
    fields: dict[str, object] = {"token": token, "over_at": over_at.isoformat()}
    write_record(f"{attempt_directory}/{_NAME}", fields, durable=True)


def withdraw(attempt_directory: str, token: str) -> None:
    """This call has certainly made no job: it leaves nothing behind, unless another one was noted meanwhile."""
    path = f"{attempt_directory}/{_NAME}"
    if (read_record(path) or {}).get("token") == token:
        _remove(path)
    _remove(f"{attempt_directory}/{environment_name(token)}")


def last_over_at(attempt_directory: str) -> datetime | None:
    """When the last call is over at the latest, or was over. None: sbatch was never called, or made no job.

    A note that cannot be read is of some call, long ago.
    """
    path = f"{attempt_directory}/{_NAME}"
    record = read_record(path)
    if record is None:
        return _LONG_AGO if os.path.lexists(path) else None
    try:
        at = datetime.fromisoformat(f"{record.get('over_at')}")
    except ValueError:
        return _LONG_AGO
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
