"""When sbatch was called last for an attempt: written before the call, in the attempt's directory.

Whatever becomes of the call and of who made it, everybody knows then that there may be a job, and until when it may
still show up.
"""

from datetime import UTC, datetime
from typing import Final

from shared.backends.local.files import read_record, write_record

_NAME: Final = "asked.json"


def note(attempt_directory: str, token: str, at: datetime) -> None:
    """Durable when this returns."""
    fields: dict[str, object] = {"token": token, "asked_at": at.isoformat()}
    write_record(f"{attempt_directory}/{_NAME}", fields, durable=True)


def last(attempt_directory: str) -> datetime | None:
    """None: sbatch was never called. One that cannot be read was called at some time: as if it were long ago."""
    record = read_record(f"{attempt_directory}/{_NAME}")
    if record is None:
        return None
    try:
        at = datetime.fromisoformat(f"{record.get('asked_at')}")
    except ValueError:
        return datetime(1970, 1, 1, tzinfo=UTC)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
