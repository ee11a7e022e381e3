"""What one observer of a Slurm cluster leaves for the next in the tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from services.watcher.slurm.blindness import Blind, Sight
from services.watcher.store import Expected, Store, Term

_SIGHT: Final = "SELECT looked_at, blind FROM looks WHERE cluster = $1"
_KEEP: Final = """
INSERT INTO looks (cluster, looked_at, blind) VALUES ($1, $2, $3::jsonb)
ON CONFLICT (cluster) DO UPDATE SET looked_at = excluded.looked_at, blind = excluded.blind
"""


class Kept:
    """The tables, for eyes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def expected(self, cluster: str) -> Sequence[Expected]:
        """Whose end is not known yet."""
        return await self._store.expected(cluster)

    async def sight(self, cluster: str) -> Sight:
        """What was kept last."""
        row = await self._store.database.fetchrow(_SIGHT, cluster)
        if row is None:
            return Sight()
        blind = (Blind(*map(datetime.fromisoformat, times)) for times in row["blind"])
        return Sight(row["looked_at"], tuple(blind))

    async def keep_sight(self, term: Term, sight: Sight) -> None:
        """For who observes next. Raises LeaseLost where somebody does already."""
        if sight.looked_at is None:
            return
        blind = [[time.since.isoformat(), time.until.isoformat()] for time in sight.blind]
        async with self._store.database.transaction() as tx:
            await term.check(tx)
            await tx.execute(_KEEP, term.cluster, sight.looked_at, blind)
