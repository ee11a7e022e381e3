"""Whatever the backend still shows of a sealed attempt is killed, shown, and let go."""

from collections.abc import Sequence
from dataclasses import replace

from opentelemetry.metrics import Meter

from services.launcher.backend import Backend, Shown, Where
from services.launcher.store import Store
from shared.backends.local.messages import CouldNotAsk
from shared.runtime.logs import Log


class Sweep:
    """Compares what the backend shows with what the launcher has sealed."""

    def __init__(self, store: Store, backend: Backend, log: Log, meter: Meter) -> None:
        self._store = store
        self._backend = backend
        self._log = log
        self._killed = meter.create_counter(
            "tidegate_sealed_attempts_seen", description="Sealed attempts that were seen alive, and killed"
        )

    async def once(self) -> int:
        """Kill live submissions of sealed attempts, release ended ones; how many were alive."""
        ours = await self._backend.shown()
        sealed = await self._store.sealed_among([one.target.key for one in ours])
        alive: list[Shown] = []
        for one in ours:
            row = sealed.get(one.target.key)
            if row is None:
                continue
            if one.where is not Where.ALIVE:
                if row.witnessed or row.ran is False:
                    await self._release(one)
            elif one.claimed:  # before the claim a runner still finds `revoked` and ends
                alive.append(replace(one, target=replace(one.target, tenant=row.tenant)))
        alive = await self._still_alive(alive)
        for one in alive:
            await self._kill(one)
        return len(alive)

    async def _still_alive(self, shown: Sequence[Shown]) -> list[Shown]:
        """Looked at again: what was shown before the vote was read may have ended in between."""
        looks = await self._backend.find([one.target for one in shown]) if shown else []
        return [look for look in looks if isinstance(look, Shown) and look.where is Where.ALIVE]

    async def _kill(self, one: Shown) -> None:
        self._killed.add(1)
        ended = await self._backend.kill(one.target)
        self._log.error("a sealed attempt was alive and is killed", submission=one.target.submission, ended=ended)

    async def _release(self, one: Shown) -> None:
        for answer in await self._backend.release([one.target]):
            if isinstance(answer, CouldNotAsk):
                submission = one.target.submission
                self._log.warning("records cannot be released yet", submission=submission, why=str(answer))
