"""What the tables hold of jobs on a Slurm cluster: what one observer leaves for the next, and which ends stay."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics

from services.watcher.domain import Finding, Watch
from services.watcher.observing import Observing
from services.watcher.slurm.blindness import Blind, Sight
from services.watcher.slurm.kept import Kept
from services.watcher.store import Store
from shared.runtime.database import Tx
from shared.runtime.leases import LeaseLost
from shared.runtime.logs import Log
from tests.integration.watcher.world import World
from tests.unit.watcher.slurm.looking import Looking

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
JOB = "j" + "0" * 26
NAME = f"tidegate.{JOB}.a1.s1"


@dataclass
class Term:
    """Of an observer of the cluster, until it is over."""

    cluster: str = "hpc"
    epoch: int = 1
    over: bool = False

    async def check(self, tx: Tx) -> None:
        if self.over:
            raise LeaseLost("another replica observes")


class Slice:
    """The tables, with one attempt on the cluster."""

    def __init__(self, world: World) -> None:
        self.world, self.term, self.store = world, Term(), Store(world.database)

    async def watch(self) -> None:
        """Its end is owed."""
        watch = Watch(JOB, 1, "acme", 1, 5, True, NAME, NOON, cluster="hpc")
        await self.store.write([watch], NOON)

    async def tell(self, kind: str, fields: Mapping[str, Any], restart: int = 0) -> list[str]:
        """What of a finding is told."""
        name = NAME if restart == 0 else f"{NAME}+{restart}"
        await self.store.tell(self.term, [Finding(name, kind, JOB, 1, self.fact(restart, fields))], NOON)
        return [fact.kind for fact in await self.world.facts()]

    def fact(self, restart: int, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """All of a fact's fields."""
        key = {"submission": NAME, "restart": restart, "created_at": NOON.isoformat()}
        return {"tenant": "acme", "segment": key, **fields}

    async def owed(self) -> bool:
        """Whether its end is still owed."""
        return bool(await self.store.expected("hpc"))


@pytest.fixture
async def tables(world: World) -> Slice:
    tables = Slice(world)
    await tables.watch()
    return tables


SOON = NOON.isoformat()
RUNNING: dict[str, Any] = {"started_at": SOON, "raw_state": "RUNNING"}
GIVEN_UP: dict[str, Any] = {"given_up": True, "ended_at": SOON, "reason": "configuration", "raw_state": "PENDING"}
CANCELLED: dict[str, Any] = {
    "started_at": None,
    "ended_at": SOON,
    "reason": "stopped_at_backend",
    "raw_state": "CANCELLED",
}
RAN: dict[str, Any] = {"started_at": SOON, "ended_at": SOON, "code": 3, "raw_state": "FAILED"}


async def test_the_end_of_what_was_given_up_stays_when_it_is_cancelled_for_it(tables: Slice) -> None:
    assert await tables.tell("exited", GIVEN_UP) == ["exited"]
    assert await tables.tell("exited", GIVEN_UP | {"ended_at": (NOON + timedelta(seconds=9)).isoformat()}) == []
    assert await tables.tell("exited", CANCELLED) == []
    assert not await tables.owed()


async def test_the_end_of_what_ran_after_it_was_given_up_is_told(tables: Slice) -> None:
    await tables.tell("exited", GIVEN_UP)
    assert await tables.tell("exited", RAN) == ["exited"]


async def test_no_estimate_takes_the_place_of_what_is_known(tables: Slice) -> None:
    estimate = {"ended_at": SOON, "raw_reason": "REQUEUED", "estimated": True}
    known = {"started_at": SOON, "ended_at": SOON, "raw_reason": "NODE_FAIL", "estimated": False}
    told = [await tables.tell("segment_requeued", fields) for fields in (estimate, known, estimate, known)]
    assert told == [["segment_requeued"], ["segment_requeued"], [], []]


async def test_an_end_is_owed_anew_once_it_was_queued_again(tables: Slice) -> None:
    await tables.tell("seen_running", RUNNING)
    assert await tables.owed()
    await tables.tell("exited", RAN)
    assert not await tables.owed()
    await tables.tell("seen_pending", {"raw_state": "PENDING"}, 1)
    assert await tables.owed()


async def test_a_loss_takes_back_every_segments_sightings(tables: Slice) -> None:
    await tables.tell("seen_running", RUNNING, 1)
    await tables.store.lose(
        tables.term, [Finding(NAME, "lost", JOB, 1, {"tenant": "acme", "last_seen_at": None})], NOON
    )
    assert not await tables.owed()
    assert await tables.tell("seen_running", RUNNING, 1) == ["lost", "seen_running"]
    assert await tables.owed()


class Observer:
    """One process that observes the cluster, look by look."""

    def __init__(self, tables: Slice, looking: Looking) -> None:
        self.tables, self.looking = tables, looking
        self.watcher = tables.world.watcher()
        looking.kept = Kept(tables.store)
        looking.eyes = looking.another()
        self.observing = Observing(
            tables.store,
            looking.eyes,
            self.watcher.restoring,
            looking.clock,
            Log("tidegate"),
            metrics.get_meter("test"),
            lease=self.watcher.lease,
            epoch=lambda: 1,
            lost_after=timedelta(seconds=60),
            longest_gap=timedelta(seconds=30),
        )

    async def looks(self, seconds: int) -> list[Any]:
        """What it tells in a time of looks, 10 s apart."""
        for _ in range(seconds // 10):
            self.looking.clock.advance(timedelta(seconds=10))
            await self.watcher.lease.keep(self.tables.world.keeping)
            await self.observing.once()
        await self.observing.keep()
        return await self.tables.world.facts()


async def test_what_nothing_ends_is_lost_although_its_observer_changed(tables: Slice, tmp_path: Path) -> None:
    looking = Looking(tmp_path, tick_seconds=10)
    assert await Observer(tables, looking).looks(60) == []
    assert (await Kept(tables.store).sight("hpc")).looked_at == looking.clock.now()
    [lost] = await Observer(tables, looking).looks(40)
    assert (lost.kind, lost.last_seen_at) == ("lost", None)


async def test_before_it_is_lost_the_runners_record_ends_it(tables: Slice, tmp_path: Path) -> None:
    looking = Looking(tmp_path, accounting=False)
    looking.recorded(0, 5, code=3)
    assert await Observer(tables, looking).looks(50) == []
    [end] = await Observer(tables, looking).looks(40)
    assert (end.kind, end.code, end.self_reported) == ("exited", 3, True)
    assert not await tables.owed()


async def test_one_observer_leaves_what_it_saw_for_the_next(tables: Slice) -> None:
    kept = Kept(tables.store)
    assert await kept.sight("hpc") == Sight()
    await kept.keep_sight(tables.term, Sight())
    for hours in (1, 2):
        sight = Sight(NOON + timedelta(hours=hours), (Blind(NOON, NOON + timedelta(minutes=5)),))
        await kept.keep_sight(tables.term, sight)
        assert await Kept(tables.store).sight("hpc") == sight
    tables.term.over = True
    with pytest.raises(LeaseLost):
        await kept.keep_sight(tables.term, Sight(NOON))
    assert await kept.sight("hpc") == sight
    assert await kept.sight("another") == Sight()
