"""Accounting, asked only for the submissions of which the queue does not say all, and no more often than it changes."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Final

from shared.backends.slurm.client import SlurmClient
from shared.backends.slurm.rows import AccountingRow, NoAnswer

_EVERY: Final = timedelta(seconds=5)
_BEFORE: Final = timedelta(hours=1)
"""So far clocks may be apart, and a submission be accepted later than Slurm had it."""


class Past:
    """One cluster's. What it said of a name is kept for as long as somebody keeps the name."""

    def __init__(self, client: SlurmClient, *, enabled: bool) -> None:
        self._client = client
        self._enabled = enabled
        self._rows: dict[str, list[AccountingRow]] = {}
        self._asked_at: datetime | None = None
        self._problem: str | None = None
        self._answered: frozenset[str] = frozenset()

    @property
    def rows(self) -> Sequence[AccountingRow]:
        """All that it said of the names that are kept."""
        return [row for rows in self._rows.values() for row in rows]

    def of(self, name: str) -> tuple[AccountingRow, ...]:
        """What it said of one."""
        return tuple(self._rows.get(name, ()))

    def has_answered(self, name: str) -> bool:
        """Whether its last answer would show the name; accounting that is switched off never shows more."""
        return not self._enabled or name in self._answered

    async def ask(
        self, wanted: Mapping[str, datetime], at: datetime, *, everything_since: datetime | None = None
    ) -> str | None:
        """Ask about names, each accepted at a time, unless that was just done; or about every name since a time. Why it
        could not be asked, if so: that stays true until it has answered again."""
        if not self._enabled or not (wanted or everything_since):
            self._problem = None
            return None
        if self._asked_at is not None and timedelta(0) <= at - self._asked_at < _EVERY:
            return self._problem
        self._asked_at = at
        since = min([*wanted.values(), *([everything_since] if everything_since else [])])
        return await self._ask(since - _BEFORE, None if everything_since else wanted.keys())

    async def ask_at_once(self, name: str, since: datetime) -> str | None:
        """About one name, whenever it was asked before."""
        return await self._ask(since - _BEFORE, {name})

    def keep(self, names: Set[str]) -> None:
        """Forget all others."""
        for name in self._rows.keys() - names:
            del self._rows[name]

    async def _ask(self, since: datetime, names: Set[str] | None) -> str | None:
        found = await self._client.accounting(since, names=names)
        if isinstance(found, NoAnswer):
            self._problem, self._answered = found.why, frozenset()
            return found.why
        self._problem = None
        for name in self._rows.keys() if names is None else names:
            self._rows[name] = []
        for row in found.rows:
            self._rows.setdefault(row.name, []).append(row)
        self._answered = frozenset(self._rows if names is None else names)
        return None
