"""Jobs that do not move are asked about again, ever more rarely, by one replica, and of nobody who lags."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx

from services.api.announce import FIRST_AFTER, HELD_FIRST_AFTER, LAGS_FROM, Announcer
from shared.lifecycle.duties import OWED_BY, Duty
from shared.runtime.clock import FixedClock
from shared.runtime.errors import BrokerUnavailable
from shared.runtime.topology import CONSUMERS
from tests.integration.api.conftest import RunningApi, eventually, running, settings_for


def _announcer(api: RunningApi, clock: FixedClock, lag: Callable[[str], Awaitable[int]] | None = None) -> Announcer:
    return Announcer(api.service.db, clock, lag or api.service.broker.lag, api.lease)


async def _round(api: RunningApi, announcer: Announcer) -> int:
    """A round by the replica that leads."""
    await api.leads()
    return await announcer.round()


async def _overdue(api: RunningApi, rin: httpx.AsyncClient, count: int) -> tuple[list[str], FixedClock]:
    """So many jobs whose first event was sent, and a clock by which an answer is overdue."""
    jobs = [(await api.submit(rin))["id"] for _ in range(count)]

    async def all_sent() -> bool:
        return not await api.service.db.fetchval("SELECT count(*) FROM events WHERE sent_at IS NULL")

    await eventually(all_sent, "all events to be sent")
    return jobs, FixedClock(datetime.now(UTC) + FIRST_AFTER * 1.3)


async def _happened_before(api: RunningApi, clock: FixedClock) -> None:
    """Let all that was told lie so far back that by this clock an answer is overdue."""
    await api.service.db.execute("UPDATE events SET at = $1, sent_at = $1", clock.now() - FIRST_AFTER * 1.3)


async def test_announces_a_job_again_that_does_not_move(api: RunningApi, rin: httpx.AsyncClient) -> None:
    jobs, clock = await _overdue(api, rin, 3)
    await rin.post(f"/v1/jobs/{jobs[0]}/stop")
    assert await _round(api, _announcer(api, FixedClock(datetime.now(UTC)))) == 0
    assert await _round(api, _announcer(api, clock)) == 2  # the stopped one owes nobody an answer


async def test_asks_again_after_twice_the_time(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    at = datetime.now(UTC)
    clock = FixedClock(at)
    announcer = _announcer(api, clock)

    async def asked_at(minutes: float) -> bool:
        clock.set(at + timedelta(minutes=minutes))
        asked = await _round(api, announcer) == 1
        if asked:
            sent = "UPDATE events SET sent_at = $2 WHERE job = $1"
            await api.service.db.execute(sent, job, clock.now())
        return asked

    await api.service.db.execute("UPDATE events SET at = $2, sent_at = $2 WHERE job = $1", job, at)
    answers = [await asked_at(minutes) for minutes in (4, 7, 9, 13, 18, 20, 30, 45)]
    assert answers == [False, True, False, False, True, False, False, True]


async def test_a_job_that_a_gate_holds_has_its_answer(api: RunningApi, rin: httpx.AsyncClient) -> None:
    (job,), clock = await _overdue(api, rin, 1)
    gate = {"name": "capacity", "reason": "full", "scope": "cluster local", "lifted_by": "time"}
    await api.report("held", job, gates=[gate])

    async def told() -> bool:
        return bool((await rin.get(f"/v1/jobs/{job}")).json()["gate"])

    await eventually(told, "the gate to be shown")
    await _happened_before(api, clock)
    announcer = _announcer(api, clock)
    assert await _round(api, announcer) == 0
    clock.advance(HELD_FIRST_AFTER)
    assert await _round(api, announcer) == 1


async def test_a_gate_that_the_record_shows_itself_is_no_answer(api: RunningApi, rin: httpx.AsyncClient) -> None:
    (job,), clock = await _overdue(api, rin, 1)
    assert (await rin.post(f"/v1/jobs/{job}/hold")).json()["gate"]["name"] == "hold"
    await _happened_before(api, clock)
    assert await _round(api, _announcer(api, clock)) == 1


async def test_asks_nobody_who_has_messages_enough_waiting(api: RunningApi, rin: httpx.AsyncClient) -> None:
    jobs, clock = await _overdue(api, rin, 2)
    await api.report("admitted", jobs[0], admission=1)
    await api.becomes(rin, jobs[0], "SUBMITTED")  # so that the stager owes an answer, and not the gatekeeper
    await _happened_before(api, clock)
    lags = {"stager": LAGS_FROM, "gatekeeper": LAGS_FROM - 1}

    async def lag(consumer: str) -> int:
        return lags[consumer]

    assert await _round(api, _announcer(api, clock, lag)) == 1
    lags["stager"] -= 1
    assert await _round(api, _announcer(api, clock, lag)) == 1  # the other one was asked about


async def test_asks_nobody_while_the_broker_is_away(api: RunningApi, rin: httpx.AsyncClient) -> None:
    _, clock = await _overdue(api, rin, 1)

    async def away(consumer: str) -> int:
        raise BrokerUnavailable(f"{consumer} is not known")

    assert await _round(api, _announcer(api, clock, away)) == 0


async def test_knows_from_the_broker_how_far_a_service_is(api: RunningApi, rin: httpx.AsyncClient) -> None:
    await _overdue(api, rin, 3)

    async def known() -> bool:
        lags = {name: await api.service.broker.lag(name) for name in ("gatekeeper", "stager")}
        return lags == {"gatekeeper": 3, "stager": 0}

    await eventually(known, "the broker to count them")
    assert set(OWED_BY) == set(Duty)
    assert set(OWED_BY.values()) <= set(CONSUMERS)


async def test_of_two_replicas_one_asks(api: RunningApi, rin: httpx.AsyncClient, tmp_path: Path) -> None:
    _, clock = await _overdue(api, rin, 3)
    settings = settings_for(api.database, api.nats, tmp_path, replica="another")
    async with running(settings, api.database, api.nats) as other:
        replicas = [(replica.lease, _announcer(replica, clock)) for replica in (api, other)]

        async def asked() -> int:
            lease, follower = next(replica for replica in replicas if not replica[0].held)
            early = await follower.round()
            assert early == 0 or lease.held, "it had no lease, and asked"
            return early + sum([await announcer.round() for _, announcer in replicas])

        assert await eventually(asked, "one of them to ask") == 3
