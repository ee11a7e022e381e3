"""Where a service stands after a restore: the epoch, and whether the database was restored and is not in step yet."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from shared.runtime.database import Database
from shared.runtime.errors import RpcError, Unavailable
from shared.runtime.logs import Log

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


class StandingKeeper:
    """The standing of one replica: read at the start, and after that whatever brings it back into step."""

    def __init__(
        self,
        database: Database,
        *,
        unsent: Callable[[], Awaitable[int]],
        ask_api: Callable[[], Awaitable[bytes]] | None,
        log: Log,
    ) -> None:
        """`ask_api` asks the query `api.standing`; None for a service that says itself when it is in step."""
        self._database = database
        self._unsent = unsent
        self._ask_api = ask_api
        self._log = log
        self._now: Standing | None = None

    @property
    def now(self) -> Standing:
        """As it was read last."""
        assert self._now is not None, "the standing is known once the service has connected"
        return self._now

    async def load(self) -> None:
        """Read it."""
        self._now = await read_standing(self._database)

    async def mark_in_step(self) -> None:
        """The restore is over for this service, on all its replicas."""
        await mark_in_step(self._database, self.now.epoch)
        await self.load()
        self._log.info("in step again after the restore", epoch=self.now.epoch)

    async def follow(self) -> None:
        """While restoring: see whether another replica is in step, or whether `api` is, in the same epoch."""
        if not self.now.restoring:
            return
        await self.load()
        if self._ask_api is None or not self.now.restoring:
            return
        try:
            told = orjson.loads(await self._ask_api())
        except (Unavailable, RpcError):
            return  # asked again in a second
        if told["epoch"] == self.now.epoch and not told["restoring"]:
            await self.mark_in_step()

    async def answer(self, _: bytes) -> bytes:
        """Where this service stands: epoch, whether it is restoring, and how many messages it has not sent yet."""
        unsent = await self._unsent()
        return orjson.dumps({"epoch": self.now.epoch, "restoring": self.now.restoring, "unsent": unsent})
