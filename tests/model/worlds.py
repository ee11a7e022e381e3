"""The worlds that are searched: whole ones, and for each guard the one in which taking it out tells."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tests.model.state import Guard, World

LOCAL: Final = World(requeues=0)
"""A backend that takes a submission once, as the local one does."""
BATCH_SYSTEM: Final = World(requeues=0, without=frozenset({Guard.ONCE}))
"""A backend that makes a job of every order: nothing but the claim keeps two orders from running twice."""
REQUEUING: Final = World(requeues=1)
"""The backend may start a submission again elsewhere while its runner is dead, or cut off and alive."""
PURGED: Final = World(requeues=0, purge=True)
"""Directories of sealed attempts, with their `claim` and `revoked`, are removed in the end."""

WHOLE: Final[Mapping[str, World]] = MappingProxyType(
    {
        "a backend that takes a submission once": LOCAL,
        "a batch system that runs every order": BATCH_SYSTEM,
        "a backend that requeues": REQUEUING,
        "attempts' directories are removed at last": PURGED,
    }
)
LONG: Final[Mapping[str, World]] = MappingProxyType(
    {
        "a batch system that requeues": replace(BATCH_SYSTEM, requeues=1),
        "two faults": replace(LOCAL, faults=2),
        "two faults at a batch system": replace(BATCH_SYSTEM, faults=2),
        "two faults and directories removed at last": replace(PURGED, faults=2),
    }
)
"""Some minutes."""

TELLING: Final[Mapping[Guard, World]] = MappingProxyType(
    {
        Guard.CLAIM: BATCH_SYSTEM,
        Guard.LOOK: LOCAL,
        Guard.CLAIM_FIRST: LOCAL,
        Guard.TOKEN: LOCAL,
        Guard.LEASE: LOCAL,
        Guard.NOT_AFTER: PURGED,
        Guard.REVOKING_FIRST: LOCAL,
        Guard.READ_AFTER: LOCAL,
        Guard.AWAIT: LOCAL,
        Guard.SWEEP: LOCAL,
        Guard.ONE_VOTE: LOCAL,
        Guard.HIGHER_CLAIM: REQUEUING,
    }
)
"""Where a guard is needed. `ONCE` is missing: with the claim in place the backend may run every order."""

SECOND_LINES: Final[Mapping[Guard, World]] = MappingProxyType({Guard.CLAIM: LOCAL, Guard.NOT_AFTER: LOCAL})
"""Where another guard stands in: for the claim the backend's taking a submission once, for the deadline `revoked`."""


def without(world: World, guard: Guard) -> World:
    """The same world with that guard taken out."""
    return replace(world, without=world.without | {guard})
