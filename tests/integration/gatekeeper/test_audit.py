"""What was lost on the way is found by asking, and nothing is released on silence."""

from datetime import timedelta

import pytest

from services.gatekeeper.audit import Audit
from shared.contracts.queries import NewestAnswer, NewestAsked
from shared.runtime.errors import RpcUnavailable
from tests.integration.gatekeeper.world import World


class Api:
    """Answers from the world's records; `known` says about which."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.known: set[str] = set(world.records)
        self.asked: list[str] = []

    async def newest(self, request: bytes) -> bytes:
        jobs = NewestAsked.model_validate_json(request).jobs
        self.asked += jobs
        events = [self.world.event(self.world.records[job]).body.decode() for job in jobs if job in self.known]
        return NewestAnswer(events=tuple(events)).model_dump_json().encode()


async def a_leak(world: World) -> str:
    """A job that let go, whose last events never came."""
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    world.walks(job)
    world.clock.advance(timedelta(minutes=11))
    await world.cluster()
    return job


async def test_a_reservation_whose_end_was_lost_is_ended_with_its_reason_and_the_next_gets_in(world: World) -> None:
    job = await a_leak(world)
    [rival] = await world.submit(gpus=8)
    assert rival in await world.held()
    api = Api(world)
    await Audit(world.db, world.clock, world.gatekeeper, api.newest).audit()
    assert await world.db.fetchval("SELECT ended_why FROM reservations WHERE job = $1", job) == (
        "the attempt is SUCCEEDED"
    )
    assert api.asked == [job]
    assert await world.admitted() == [rival]


async def test_a_job_that_api_does_not_know_keeps_its_reservation(world: World) -> None:
    await a_leak(world)
    api = Api(world)
    api.known.clear()
    await Audit(world.db, world.clock, world.gatekeeper, api.newest).audit()
    assert await world.used() == (1, 8)


async def test_no_answer_releases_nothing(world: World) -> None:
    await a_leak(world)

    async def silent(request: bytes) -> bytes:
        raise RpcUnavailable("nobody answers")

    await Audit(world.db, world.clock, world.gatekeeper, silent).audit()
    assert await world.used() == (1, 8)


@pytest.mark.parametrize("minutes", [9, 11])
async def test_a_job_that_runs_is_asked_about_from_ten_minutes_on_and_keeps_what_it_has(
    world: World, minutes: int
) -> None:
    [job] = await world.submit(gpus=8)
    await world.api_applies()
    await world.happens(job, *world.launched(job))
    world.clock.advance(timedelta(minutes=minutes))
    api = Api(world)
    await Audit(world.db, world.clock, world.gatekeeper, api.newest).audit()
    assert api.asked == ([job] if minutes > 10 else [])
    assert await world.used() == (1, 8)


async def test_an_admission_that_was_lost_on_its_way_is_told_again(world: World) -> None:
    [job] = await world.submit(gpus=8)
    await world.facts()
    world.clock.advance(timedelta(minutes=11))
    await Audit(world.db, world.clock, world.gatekeeper, Api(world).newest).audit()
    assert await world.admitted() == [job]


async def test_every_open_reservation_is_reached(world: World) -> None:
    await world.cluster(slots=1000)
    jobs = await world.submit(250, gpus=0)
    await world.api_applies()
    world.clock.advance(timedelta(minutes=11))
    api = Api(world)
    audit = Audit(world.db, world.clock, world.gatekeeper, api.newest)
    await audit.audit()
    assert sorted(api.asked) == sorted(jobs)
    await audit.audit()
    assert len(api.asked) == 500
