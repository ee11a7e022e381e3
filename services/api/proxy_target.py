"""Where a workstation's process listens: as the watcher says, for the current attempt while it runs."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from services.api.asking import Asking
from services.api.problems import Problem
from shared.runtime.database import Database

_KEPT_SECONDS: Final = 3.0
_KEPT: Final = 1000
_AT_ONCE: Final = 200
_IN_ALL: Final = 1000
_SOCKETS_AT_ONCE: Final = 50
_SOCKETS_IN_ALL: Final = 500

# The attempt that may be reached now: none while it waits, is being suspended or stopped, or has ended.
UP: Final = """
SELECT (record ->> 'attempt')::int AS attempt, record -> 'workstation' ->> 'keeps_prefix' = 'true' AS keeps_prefix
FROM jobs
WHERE id = $1 AND tenant = $2 AND kind = 'workstation' AND state = 'RUNNING' AND record ->> 'phase' = 'active'
    AND record ->> 'desired_state' = 'run' AND record ->> 'command_ended_at' IS NULL
"""


@dataclass(frozen=True, slots=True)
class Up:
    """A workstation that can be reached: its current attempt."""

    job: str
    attempt: int
    keeps_prefix: bool


@dataclass(frozen=True, slots=True, repr=False)
class Target:
    """A port of 127.0.0.1, and the secret that the process behind it knows."""

    port: int
    secret: str


class Targets:
    """What can be reached now. Endpoints are remembered for a few seconds, by attempt: never those of another."""

    def __init__(self, database: Database, asking: Asking) -> None:
        self._database = database
        self._asking = asking
        self._known: dict[tuple[str, int], tuple[float, Target]] = {}
        self._open: Counter[str] = Counter()
        self._sockets: Counter[str] = Counter()

    async def up(self, tenant: str, job: str) -> Up | None:
        """The tenant's workstation, if it is up this moment."""
        row = await self._database.fetchrow(UP, job, tenant)
        return None if row is None else Up(job, row["attempt"], bool(row["keeps_prefix"]))

    async def of(self, tenant: str, up: Up) -> Target:
        """Where it listens; raises while the backend has not said so yet."""
        key, now = (up.job, up.attempt), time.monotonic()
        known = self._known.get(key)
        if known is not None and known[0] > now:
            return known[1]
        answer = await self._asking.endpoint(tenant, up.job, up.attempt)
        if answer.port is None or answer.secret is None:
            raise not_listening(up.job)
        self._known = {key: entry for key, entry in self._known.items() if entry[0] > now}
        if len(self._known) < _KEPT:
            self._known[key] = (now + _KEPT_SECONDS, Target(answer.port, answer.secret))
        return Target(answer.port, answer.secret)

    async def confirm(self, tenant: str, up: Up, target: Target) -> None:
        """Raises where the watcher does not say the same once more. To be asked once a connection is open, before the
        secret goes over it: the port may have gone to somebody else since it was remembered."""
        try:
            answer = await self._asking.endpoint(tenant, up.job, up.attempt)
        except Problem:
            self.forget(up)
            raise
        if (answer.port, answer.secret) != (target.port, target.secret):
            self.forget(up)
            raise not_listening(up.job)

    def forget(self, up: Up) -> None:
        """Ask again next time: nobody listened there, or somebody else."""
        self._known.pop((up.job, up.attempt), None)

    @contextmanager
    def room(self, job: str) -> Iterator[None]:
        """One of the connections that a workstation, and all of them, may have through this process at once."""
        if self._open[job] >= _AT_ONCE or self._open.total() >= _IN_ALL:
            detail = f"too many requests are open already ({_AT_ONCE} to a workstation): let one end"
            raise Problem("unavailable", detail, headers={"Retry-After": "2"})
        self._open[job] += 1
        try:
            yield
        finally:
            self._open[job] -= 1
            if not self._open[job]:
                del self._open[job]

    @contextmanager
    def room_for_a_socket(self, job: str) -> Iterator[None]:
        """One of the WebSockets that a workstation, and all of them, may have through this process at once."""
        if self._sockets[job] >= _SOCKETS_AT_ONCE or self._sockets.total() >= _SOCKETS_IN_ALL:
            detail = f"too many WebSockets are open already ({_SOCKETS_AT_ONCE} to a workstation): close one"
            raise Problem("unavailable", detail, headers={"Retry-After": "2"})
        self._sockets[job] += 1
        try:
            yield
        finally:
            self._sockets[job] -= 1
            if not self._sockets[job]:
                del self._sockets[job]


def not_listening(job: str) -> Problem:
    """It runs, and nobody answers on its port."""
    detail = (
        "the workstation runs, and its command does not answer on its port (yet): it has to listen on 127.0.0.1, port "
        f"$TIDEGATE_PORT; `tidegate logs {job}` shows what it says"
    )
    return Problem("unavailable", detail, headers={"Retry-After": "2"})
