"""Whatever the backend still shows of a sealed attempt is killed, shown, and let go."""

import asyncio
from collections.abc import Sequence
from typing import Final

from opentelemetry.metrics import Meter

from services.launcher.store import Store
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk
from shared.backends.local.observer import Observer
from shared.backends.local.sightings import LocalState, Seen
from shared.runtime.logs import Log

_KILL_SECONDS: Final = 5.0
_OVER: Final = frozenset({LocalState.EXITED, LocalState.GONE})


class Sweep:
    """Compares what the backend shows with what the launcher has sealed."""

    def __init__(self, store: Store, backend: LocalClient, log: Log, meter: Meter, *, deployment: str) -> None:
        self._store = store
        self._backend = backend
        self._observer = Observer(backend.root)
        self._log = log
        self._deployment = deployment
        self._killed = meter.create_counter(
            "tidegate_sealed_attempts_seen", description="Sealed attempts that were seen alive, and killed"
        )

    async def once(self) -> int:
        """Kill live submissions of sealed attempts, release ended ones; how many were alive."""
        observation = await asyncio.to_thread(self._observer.observe)
        ours = [seen for seen in observation.submissions if seen.deployment == self._deployment]
        sealed = await self._store.sealed_among([(seen.job, seen.attempt) for seen in ours])
        alive: list[Seen] = []
        gone: list[Seen] = []
        for seen in ours:
            row = sealed.get((seen.job, seen.attempt))
            if row is None:
                continue
            if seen.state in _OVER:
                if row.witnessed or row.ran is False:
                    gone.append(seen)
            elif seen.state is not LocalState.ACCEPTED:  # before the claim a runner still finds `revoked` and ends
                alive.append(seen)
        alive = await self._still_alive(alive)
        await self._kill(alive)
        for seen in gone:
            try:
                await self._backend.release(seen.submission)
            except CouldNotAsk as error:
                self._log.warning("records cannot be released yet", submission=seen.submission, why=str(error))
        return len(alive)

    async def _still_alive(self, seen: Sequence[Seen]) -> list[Seen]:
        """Looked at again: what was observed before the vote was read may have ended in between."""
        looks = await self._backend.adopt_all([one.submission for one in seen]) if seen else []
        return [look for look in looks if isinstance(look, Seen) and look.state not in _OVER]

    async def _kill(self, alive: Sequence[Seen]) -> None:
        for seen in alive:
            self._killed.add(1)
            answer = await self._backend.kill(seen.submission, _KILL_SECONDS)
            self._log.error(
                "a sealed attempt was alive and is killed", submission=seen.submission, answer=answer.kind.value
            )
