"""Handing launches to the backend, exactly once.

The intent is committed before, the lease (`submitting`, owner, token, deadline) with it; the backend is asked outside
any transaction; the answer is written only where the lease still holds. Whatever is not known is asked again, for the
same submission, which the backend runs once however often it is asked. After a restore nothing is handed over before
what already runs has been seen.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final

from opentelemetry.metrics import Meter

from services.launcher.backend import Backend, Target
from services.launcher.domain import Launch, State
from services.launcher.outcomes import Later, Never, Outcome, Taken, apply, outcome, request
from services.launcher.store import Store
from shared.backends.local.messages import CouldNotAsk, LaunchAnswer, LaunchKind, LaunchRequest
from shared.lifecycle.reasons import EndReason
from shared.runtime import failpoints
from shared.runtime.clock import Clock
from shared.runtime.errors import RpcError, RpcUnavailable
from shared.runtime.logs import Log
from shared.runtime.specs import Specs

BATCH: Final = 200


class Launching:
    """Leases one cluster's due launches, asks the backend in one call, records the answers."""

    def __init__(
        self,
        store: Store,
        backend: Backend,
        specs: Specs,
        clock: Clock,
        log: Log,
        meter: Meter,
        *,
        lease_seconds: float,
        stop_grace_seconds: float,
        restoring: Callable[[], bool],
        batch: int = BATCH,
    ) -> None:
        self._store = store
        self._backend = backend
        self._specs = specs
        self._clock = clock
        self._log = log
        self._lease = timedelta(seconds=lease_seconds)
        self._stop_grace_seconds = stop_grace_seconds
        self._restoring = restoring
        self._batch = batch
        self._launched = meter.create_counter("tidegate_launches", description="Launches by what the backend answered")
        self._complained: str | None = None

    async def once(self) -> float | None:
        """Hand over one batch; in how many seconds there is more to do, None where nothing is known of."""
        if self._restoring():
            return None
        now = self._clock.now()
        token = secrets.token_hex(8)
        rows = await self._store.claim_launches(self._batch, token, now + self._lease, now, self._backend.cluster)
        if not rows:
            return None
        outcomes = await self._outcomes(rows)
        now = self._clock.now()
        written = await self._store.record_launches(
            [apply(row, result, now) for row, result in zip(rows, outcomes, strict=True)], token
        )
        self._count(outcomes)
        if len(rows) == self._batch:
            return 0.0
        pauses = [(row.next_at - now).total_seconds() for row in written if row.state is State.INTENT]
        return min(pauses, default=None)

    async def _outcomes(self, rows: Sequence[Launch]) -> list[Outcome]:
        """One per row, in order."""
        known: dict[tuple[str, int], Outcome] = await self._adopted([row for row in rows if row.asked])
        try:
            specs = await self._specs.get((row.tenant, row.spec_digest) for row in rows if row.key not in known)
        except (RpcUnavailable, RpcError) as error:
            # Nothing was asked of the backend: `absent` says no more than the row itself said before.
            why = Later(f"api does not tell what is to run: {error}", absent=True)
            return [known.get(row.key) or replace(why, absent=not row.asked) for row in rows]
        requests: dict[tuple[str, int], LaunchRequest] = {}
        for row in rows:
            if row.key in known:
                continue
            spec = specs.get((row.tenant, row.spec_digest))
            made = _unknown_spec(row) if spec is None else request(row, spec, self._stop_grace_seconds)
            if isinstance(made, Never):
                known[row.key] = made
            else:
                requests[row.key] = made
        answers = dict(zip(requests, await self._ask(list(requests.values())), strict=True))
        now = self._clock.now()
        known |= {key: outcome(answer, now) for key, answer in answers.items()}
        # Launched before, and forgotten since: by a launcher that was killed, or by a database that was restored.
        known |= await self._adopted(
            [row for row in rows if row.key in answers and answers[row.key].kind is LaunchKind.ALREADY]
        )
        return [known[row.key] for row in rows]

    async def _ask(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        if not requests:
            return []
        failpoints.reach("submit.before")
        answers = await self._backend.launch(requests)
        failpoints.reach("submit.after")
        return answers

    async def _adopted(self, rows: Sequence[Launch]) -> dict[tuple[str, int], Outcome]:
        """Of launches that may have reached the backend: those it has already, and those nobody can tell about."""
        found: dict[tuple[str, int], Outcome] = {}
        targets = [Target(row.submission, row.tenant, row.job, row.attempt) for row in rows]
        looks = await self._backend.find(targets) if rows else []
        for row, shown in zip(rows, looks, strict=True):
            if isinstance(shown, CouldNotAsk):
                found[row.key] = Later(str(shown), absent=False)
            elif shown is not None:
                found[row.key] = Taken(shown.begun_at or self._clock.now(), shown.ref)
        return found

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        late = [result for result in outcomes if isinstance(result, Later)]
        for name, kind in (("taken", Taken), ("later", Later), ("never", Never)):
            if count := sum(isinstance(result, kind) for result in outcomes):
                self._launched.add(count, {"answer": name})
        why = late[0].why if late else None
        if why is not None and why != self._complained:
            self._log.warning("launches wait", count=len(late), why=why)
        self._complained = why


def _unknown_spec(row: Launch) -> Never:
    return Never(EndReason.LAUNCH_REFUSED, f"its spec {row.spec_digest} is not known to the api: submit the job again")
