"""Where a service stands after a restore: the epoch, and whether the database was restored and is not in step yet."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from shared.runtime.database import Database

READ: Final = "SELECT epoch, restoring, backup_at FROM standing"
IN_STEP: Final = "UPDATE standing SET restoring = false WHERE epoch = $1 AND restoring"


@dataclass(frozen=True, slots=True)
class Standing:
    """The row `standing` of a service's slice. `epoch` is 1, and one more after every restore of the database; facts
    and new versions of records carry it. While `restoring`, nothing is admitted and nothing is launched; `backup_at` is
    then the instant to which the database was taken back."""

    epoch: int
    restoring: bool
    backup_at: datetime | None


async def read_standing(database: Database) -> Standing:
    """As the slice says now."""
    row = await database.fetchrow(READ)
    assert row is not None, "the migration puts the row in"
    return Standing(row["epoch"], row["restoring"], row["backup_at"])


async def mark_in_step(database: Database, epoch: int) -> None:
    """The restore that began this epoch is over for this service."""
    await database.execute(IN_STEP, epoch)
