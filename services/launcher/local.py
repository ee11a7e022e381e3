"""The local backend as the launcher sees it: its host for launches, its records for everything else."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from services.launcher.backend import Holder, Look, Shown, Target, Where
from shared.backends.clusters import LOCAL
from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk, KillKind, LaunchAnswer, LaunchRequest, ReleaseAnswer
from shared.backends.local.observer import Observer
from shared.backends.local.sightings import LocalState, Seen

_KILL_SECONDS: Final = 5.0
_NEVER_RAN: Final = frozenset({"revoked", "stopped_before_start", "attempt_claimed"})
"""Ends of a runner that did not start the command and exits 75: no end of the command, so nobody reports one."""
_WHERE: Final = {LocalState.EXITED: Where.ENDED, LocalState.GONE: Where.GONE}


class LocalBackend:
    """This machine."""

    cluster: Final = LOCAL

    def __init__(self, client: LocalClient, deployment: str) -> None:
        self._client = client
        self._observer = Observer(client.root)
        self._deployment = deployment

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """As the protocol says."""
        return await self._client.launch(requests)

    async def find(self, targets: Sequence[Target]) -> list[Shown | CouldNotAsk | None]:
        """As the protocol says. One that died before it took its claim never ran, and is launched again."""
        looks = await self._looks([target.submission for target in targets])
        found: list[Shown | CouldNotAsk | None] = []
        for target in targets:
            seen = looks[target.submission]
            shown = seen if seen is None or isinstance(seen, CouldNotAsk) else shown_of(seen, target.tenant)
            never_began = isinstance(shown, Shown) and shown.where is Where.GONE and not shown.claimed
            found.append(None if never_began else shown)
        return found

    async def revoke(self, targets: Sequence[Target]) -> list[Look]:
        """As the protocol says: `revoked` first, then the claims."""
        directories = [self._client.attempt_directory(one.tenant, one.job, one.attempt) for one in targets]
        claims = await self._client.revoke_all(directories)
        names = [
            ()
            if isinstance(found, CouldNotAsk)
            else tuple(dict.fromkeys(claim.submission or target.submission for claim in found))
            for target, found in zip(targets, claims, strict=True)
        ]
        looks = await self._looks(sorted({name for some in names for name in some}))
        return [
            found if isinstance(found, CouldNotAsk) else _holders(some, looks, target.tenant)
            for target, found, some in zip(targets, claims, names, strict=True)
        ]

    async def stop(self, target: Target, grace_seconds: float, signal_number: int, *, pausing: bool) -> None:
        """As the protocol says."""
        await self._client.stop(target.submission, grace_seconds, signal_number, pausing=pausing)

    async def kill(self, target: Target) -> bool:
        """As the protocol says."""
        return (await self._client.kill(target.submission, _KILL_SECONDS)).kind is not KillKind.UNCLEAR

    async def release(self, targets: Sequence[Target]) -> list[ReleaseAnswer | CouldNotAsk]:
        """As the protocol says."""
        return await self._client.release_all([target.submission for target in targets])

    async def shown(self) -> list[Shown]:
        """As the protocol says."""
        observation = await asyncio.to_thread(self._observer.observe)
        return [
            shown_of(seen, "" if seen.spec is None else seen.spec.tenant)
            for seen in observation.submissions
            if seen.deployment == self._deployment
        ]

    async def _looks(self, names: Sequence[str]) -> Mapping[str, Seen | CouldNotAsk | None]:
        return dict(zip(names, await self._client.adopt_all(names), strict=True)) if names else {}


def _holders(names: Sequence[str], looks: Mapping[str, Seen | CouldNotAsk | None], tenant: str) -> Look:
    """Who holds a claim; no information where one of them could not be looked at."""
    found = []
    for name in names:
        seen = looks[name]
        if isinstance(seen, CouldNotAsk):
            return seen
        found.append(Holder(name, None if seen is None else shown_of(seen, tenant)))
    return tuple(found)


def shown_of(seen: Seen, tenant: str) -> Shown:
    """What the records of a submission say to the launcher."""
    end = seen.exit
    return Shown(
        Target(seen.submission, tenant, seen.job, seen.attempt),
        _WHERE.get(seen.state, Where.ALIVE),
        claimed=seen.claim is not None or seen.state not in (LocalState.ACCEPTED, LocalState.GONE),
        ran=end is None or end.ran or end.reason not in _NEVER_RAN,
        begun_at=None if seen.spec is None else seen.spec.accepted_at,
    )
