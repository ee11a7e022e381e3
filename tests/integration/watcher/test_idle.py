"""Idle workstations: announced once, suspended once, by whoever observes; what cannot be known suspends nobody."""

import math
from datetime import datetime, timedelta
from typing import Any

from shared.backends.local import layout
from shared.backends.local.files import write_record
from shared.lifecycle.inputs import Snooze
from shared.lifecycle.record import Workstation
from shared.runtime.clock import FixedClock, SystemClock
from tests.integration.launcher.story import Job
from tests.integration.watcher.world import Watcher, World

FOREVER = ("sh", "-c", "touch ready; while true; do sleep 0.05; done")
IDLE_SECONDS = 1800


class Desk:
    """A workstation that is up, seen by nobody but the probes that the test plays."""

    def __init__(self, world: World, clock: FixedClock, job: Job, submission: str) -> None:
        self.world, self.clock, self.job, self.submission = world, clock, job, submission
        self.since = clock.now()

    @classmethod
    async def of(cls, world: World) -> "Desk":
        clock = FixedClock(SystemClock().now().replace(microsecond=0))
        world.clock = clock
        job, submission = await world.launched(*FOREVER)
        desk = Workstation(idle_suspend_seconds=IDLE_SECONDS)
        job.record = job.record.model_copy(update={"kind": "workstation", "workstation": desk})
        job.apply(Snooze(actor="rin", at=clock.now(), until=clock.now()))
        return cls(world, clock, job, submission)

    def at(self, seconds: float) -> datetime:
        return self.since + timedelta(seconds=seconds)

    def probes_look(self, seconds: float, *, active: float = 0, broken: dict[str, str] | None = None) -> None:
        """It is that many seconds after its start, and the probes have just looked."""
        self.clock.set(self.at(seconds))
        record: dict[str, Any] = {
            "submission": self.submission,
            "since": self.since.isoformat(),
            "at": self.clock.now().isoformat(),
            "probes": {"cpu": self.at(active).isoformat(), "heartbeat": None},
            "broken": broken or {},
        }
        write_record(layout.record_path(str(self.world.backend.root), self.submission, layout.ACTIVITY), record)

    async def told(self, watcher: Watcher) -> list[Any]:
        """What is told when the watcher looks twice."""
        await watcher.look_for_idle()
        await watcher.look_for_idle()
        return await self.world.facts()


async def test_it_is_announced_once_and_suspended_once_also_by_a_watcher_that_starts_anew(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    desk.probes_look(1499)
    assert await desk.told(watcher) == []
    desk.probes_look(1500)
    (idle,) = await desk.told(watcher)
    assert (idle.kind, idle.job, idle.attempt, idle.tenant) == ("seen_idle", desk.job.id, 1, "acme")
    assert (idle.idle_since, idle.suspends_at) == (desk.at(0), desk.at(1800))
    assert idle.probes == (f"cpu: active until {desk.at(0):%H:%M:%S} UTC", "heartbeat: not active yet")
    watcher = world.watcher()
    desk.probes_look(1799)
    assert await desk.told(watcher) == []
    desk.probes_look(1800)
    (pause,) = await desk.told(watcher)
    assert (pause.kind, pause.policy) == ("policy_pause", "idle")
    assert pause.reason == (f"idle since {desk.at(0):%H:%M:%S} UTC, to be suspended at {desk.at(1800):%H:%M:%S} UTC")
    desk.probes_look(1810)
    assert await desk.told(world.watcher()) == []


async def test_use_takes_back_what_was_announced_and_the_next_warning_is_a_whole_one(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    desk.probes_look(1500)
    await desk.told(watcher)
    desk.probes_look(1700, active=1695)
    (back,) = await desk.told(watcher)
    assert (back.kind, back.idle_since, back.suspends_at) == ("seen_idle", None, None)
    desk.probes_look(4000, active=1695)
    (again,) = await desk.told(watcher)
    assert (again.idle_since, again.suspends_at) == (desk.at(1695), desk.at(4300))


async def test_a_snooze_moves_the_suspension_that_was_announced(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    desk.probes_look(1500)
    await desk.told(watcher)
    snoozed = desk.job.apply(Snooze(actor="rin", at=desk.clock.now(), until=desk.at(3600)))
    assert snoozed is not None
    await watcher.handle(snoozed)
    desk.probes_look(1800)
    (moved,) = await desk.told(watcher)
    assert (moved.kind, moved.idle_since, moved.suspends_at) == ("seen_idle", desk.at(0), desk.at(3600))
    desk.probes_look(3599)
    assert await desk.told(watcher) == []
    desk.probes_look(3600)
    assert [fact.kind for fact in await desk.told(watcher)] == ["policy_pause"]


async def test_a_suspension_that_a_snooze_overtook_is_told_anew_at_its_later_hour(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    desk.probes_look(1500)
    await desk.told(watcher)
    desk.probes_look(1800)
    (overtaken,) = await desk.told(watcher)
    snoozed = desk.job.apply(Snooze(actor="rin", at=desk.clock.now(), until=desk.at(3600)))
    assert snoozed is not None
    assert desk.job.apply(overtaken) is None, "its user has put that off"
    await watcher.handle(snoozed)
    desk.probes_look(3600)
    later = await desk.told(watcher)
    assert sorted(fact.kind for fact in later) == ["policy_pause", "seen_idle"]
    for fact in later:
        desk.job.apply(fact)
    assert desk.job.record.desired_state == "paused"


async def test_what_cannot_be_known_suspends_nobody(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    desk.clock.advance(timedelta(hours=2))
    assert await desk.told(watcher) == [], "there is no record of its activity"
    desk.probes_look(1500)
    assert [fact.kind for fact in await desk.told(watcher)] == ["seen_idle"]
    desk.probes_look(1900, broken={"gpu": "no answer"})
    (unknown,) = await desk.told(watcher)
    assert unknown.idle_since is None
    desk.probes_look(1900)
    desk.clock.advance(timedelta(minutes=5))
    assert await desk.told(watcher) == [], "the probes have stopped looking"


async def test_one_replica_tells_and_the_next_goes_on_where_it_stood(world: World) -> None:
    desk = await Desk.of(world)
    one, two = world.watcher(replica="one"), world.watcher(replica="two")
    await one.handle(desk.job.again())
    desk.probes_look(1500)
    await one.look_for_idle()
    await two.look_for_idle()
    assert [fact.kind for fact in await world.facts()] == ["seen_idle"]
    await world.hand_over()
    desk.probes_look(1800)
    await two.look_for_idle()
    one.lease._until = math.inf  # it has just looked at the clock: only the database knows better
    await one.idling.once()
    assert [fact.kind for fact in await world.facts()] == ["policy_pause"]


async def test_what_is_being_paused_is_left_alone(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.pause())
    desk.probes_look(9000)
    assert await desk.told(watcher) == []
    assert await watcher.store.resting() == []


async def test_a_question_about_an_idle_workstation_is_answered_with_its_progress(world: World) -> None:
    desk = await Desk.of(world)
    watcher = world.watcher()
    await watcher.handle(desk.job.again())
    await world.until_told(watcher, "seen_running")
    desk.probes_look(1500)
    assert [fact.kind for fact in await desk.told(watcher)] == ["seen_idle"]
    await watcher.handle(desk.job.again())
    assert [fact.kind for fact in await world.facts()] == ["seen_running"]
