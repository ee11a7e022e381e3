"""What the steps before a job in its pipeline brought back, by the names of their manifests."""

from collections.abc import Awaitable, Callable

from services.stager.blobs import StoreError
from shared.contracts.events import decode_event
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.lifecycle.states import State

Ask = Callable[[NewestAsked], Awaitable[NewestAnswer]]


class Upstream:
    """Asks `api`, which has it from the votes: this service's own rows may be older than that after a restore."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def manifests(self, after: str | None) -> tuple[str, ...]:
        """Of the step `after` and all steps before it, the first step's first; of a step without outputs none. Raises
        StoreError where a step is not known to have succeeded: nothing is staged without what it brought back."""
        found = []
        while after is not None:
            events = (await self._ask(NewestAsked(jobs=(after,)))).events
            if not events:
                raise StoreError(f"the step before it ({after}) is not known")
            step = decode_event(events[0].encode()).job
            if step.deleted:
                raise StoreError(f"the step before it ({after}) was deleted, and its outputs with it")
            if step.state is not State.SUCCEEDED or step.pipeline is None:
                raise StoreError(f"the step before it ({after}) is {step.state}, so its outputs are not there")
            copied = step.current.outputs
            if copied is not None and copied.manifest is not None:
                found.append(copied.manifest)
            after = step.pipeline.after
        return tuple(reversed(found))
