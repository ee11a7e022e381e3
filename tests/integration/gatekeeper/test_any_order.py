"""Random histories: events late, twice and out of order, people who hold, release, stop and retry.

At every step the limits hold; at the end nothing is booked and nobody was forgotten.
"""

import random

import pytest

from shared.lifecycle import facts as f
from shared.lifecycle.inputs import AnyInput
from shared.lifecycle.states import TERMINAL
from shared.runtime.messages import Delivery
from tests.integration.gatekeeper.world import World

STEPS = 120
GPUS = 6
SLOTS = 4


class History:
    """What happens, drawn from a seed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.dice = random.Random(seed)
        self.mail: list[Delivery] = []
        self.told: list[f.AnyFact] = []
        self.after: dict[tuple[str, int], int] = {}

    async def step(self) -> None:
        draw = self.dice.random()
        if draw < 0.2:
            job = self.world.a_job(gpus=self.dice.choice([0, 1, 2, 4]), priority=self.dice.choice([0, 0, 1]))
            self.writes(job)
        elif draw < 0.35:
            self.someone_asks()
        elif draw < 0.65:
            self.something_happens()
        else:
            await self.delivers(self.dice.randint(1, 2))
        if self.dice.random() < 0.1:
            await self.world.gatekeeper.tick()
        self.told += await self.world.facts()
        slots, gpus = await self.world.used()
        assert slots <= SLOTS
        assert gpus <= GPUS

    def someone_asks(self) -> None:
        """A person holds, releases, stops or retries."""
        if self.world.records:
            job = self.dice.choice(list(self.world.records))
            world = self.world
            asked: list[AnyInput] = [world.hold(), world.release(), world.stop(), world.retry()]
            self.writes(job, self.dice.choice(asked))

    def something_happens(self) -> None:
        """`api` takes the oldest fact, or the cluster gets on with a job."""
        if self.told and self.dice.random() < 0.6:
            fact = self.told.pop(0)
            self.writes(fact.job, fact)
            return
        running = [job for job, record in self.world.records.items() if record.state in ("SUBMITTED", "RUNNING")]
        if running:
            self.gets_on(self.dice.choice(running))

    def gets_on(self, job: str) -> None:
        """The next step of the attempt."""
        key = (job, self.world.records[job].attempt)
        steps = (*self.world.launched(job), *self.world.ended(job, code=self.dice.choice([0, 1])))
        done = self.after.get(key, 0)
        if done < len(steps):
            self.writes(job, steps[done])
            self.after[key] = done + 1

    def writes(self, job: str, *inputs: AnyInput) -> None:
        """`api` applies and its event is on the way, some twice, anywhere among the others."""
        before = self.world.records[job]
        record = self.world.put(job, *inputs) if inputs else before
        if record is before and inputs:
            return
        for _ in range(self.dice.choice([1, 1, 2])):
            self.mail.insert(self.dice.randint(max(0, len(self.mail) - 25), len(self.mail)), self.world.event(record))

    async def delivers(self, count: int) -> None:
        batch, self.mail = self.mail[:count], self.mail[count:]
        if batch:
            await self.world.gatekeeper.on_events(batch)

    async def comes_to_rest(self) -> None:
        """Everything on its way arrives; holds are released; every job runs to its end."""
        for job, record in list(self.world.records.items()):
            if record.hold is not None:
                self.writes(job, self.world.release())
        for _ in range(2000):
            self.told += await self.world.facts()
            while self.told:
                fact = self.told.pop(0)
                self.writes(fact.job, fact)
            await self.delivers(3)
            for job, record in list(self.world.records.items()):
                if record.state in ("SUBMITTED", "PENDING", "RUNNING"):
                    self.gets_on(job)
            if not self.mail and all(record.state in TERMINAL for record in self.world.records.values()):
                return
        raise AssertionError(f"stuck: {[(r.id, r.state, r.gate) for r in self.world.records.values()]}")


@pytest.mark.parametrize("seed", range(5))
async def test_limits_hold_at_every_step_and_nothing_is_left_at_the_end(world: World, seed: int) -> None:
    await world.quota("acme", gpus=GPUS, slots=SLOTS)
    history = History(world, seed)
    for _ in range(STEPS):
        await history.step()
    await history.comes_to_rest()
    assert await world.used() == (0, 0)
    assert await world.db.fetchval("SELECT count(*) FROM waiting") == 0
    ran = [record for record in world.records.values() if record.state != "STOPPED"]
    assert ran
    double = "SELECT count(*) FROM (SELECT FROM reservations GROUP BY job, attempt HAVING count(*) > 1) AS twice"
    refused = await world.db.fetchval("SELECT count(*) FROM reservations WHERE ended_why = 'the admission was refused'")
    assert await world.db.fetchval(double) <= refused
