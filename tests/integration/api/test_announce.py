"""Jobs that do not move are asked about again, ever more rarely."""

from datetime import UTC, datetime, timedelta

import httpx

from services.api.announce import FIRST_AFTER, Announcer
from shared.runtime.clock import FixedClock
from tests.integration.api.conftest import RunningApi, eventually


async def test_announces_a_job_again_that_does_not_move(api: RunningApi, rin: httpx.AsyncClient) -> None:
    jobs = [(await api.submit(rin))["id"] for _ in range(3)]
    await rin.post(f"/v1/jobs/{jobs[0]}/stop")
    clock = FixedClock(datetime.now(UTC))
    announcer = Announcer(api.service.db, clock)

    async def unsent() -> int:
        return int(await api.service.db.fetchval("SELECT count(*) FROM events WHERE sent_at IS NULL"))

    async def all_sent() -> bool:
        return await unsent() == 0

    await eventually(all_sent, "all events to be sent")
    assert await announcer.round() == 0
    clock.advance(FIRST_AFTER * 1.3)
    assert await announcer.round() == 2  # the stopped one owes nobody an answer
    await eventually(all_sent, "the questions to be sent")


async def test_asks_again_after_twice_the_time(api: RunningApi, rin: httpx.AsyncClient) -> None:
    job = (await api.submit(rin))["id"]
    at = datetime.now(UTC)
    clock = FixedClock(at)
    announcer = Announcer(api.service.db, clock)

    async def asked_at(minutes: float) -> bool:
        clock.set(at + timedelta(minutes=minutes))
        asked = await announcer.round() == 1
        if asked:
            sent = "UPDATE events SET sent_at = $2 WHERE job = $1"
            await api.service.db.execute(sent, job, clock.now())
        return asked

    await api.service.db.execute("UPDATE events SET at = $2, sent_at = $2 WHERE job = $1", job, at)
    answers = [await asked_at(minutes) for minutes in (4, 7, 9, 13, 18, 20, 30, 45)]
    assert answers == [False, True, False, False, True, False, False, True]
