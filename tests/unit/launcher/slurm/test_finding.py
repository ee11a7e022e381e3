"""What may have reached a cluster is looked for, and nothing but a whole answer is an absence."""

import asyncio
from pathlib import Path

import pytest

from services.launcher.backend import Shown, Where
from services.launcher.slurm import asked
from services.launcher.slurm.looks import Looks
from shared.backends.local.messages import CouldNotAsk
from shared.backends.slurm.rows import NoAnswer
from tests.unit.launcher.slurm.parts import SETTLE, TARGET, FakeClient, Stand, a_row, accounted, at, at_once


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def find(stand: Stand) -> Shown | CouldNotAsk | None:
    [found] = await stand.backend.find([TARGET])
    return found


async def test_what_is_in_the_queue_costs_no_sacct(stand: Stand) -> None:
    stand.client.rows = [a_row("RUNNING")]
    assert await find(stand) == Shown(TARGET, Where.ALIVE, begun_at=at(0), ref="7")
    assert stand.client.accounts == []


async def test_what_was_asked_for_may_show_up_until_the_settle_time_is_over(stand: Stand) -> None:
    asked.note(str(stand.directory()), "t1", at(40))
    for seconds in (0, 99):
        stand.clock.set(at(seconds))
        found = await find(stand)
        assert isinstance(found, CouldNotAsk)
        assert str(found) == "whether hpc has it is not known: its job may show up until 12:01:40 UTC"
    assert stand.client.accounts == []
    stand.clock.set(at(40) + SETTLE)
    assert await find(stand) is None
    assert stand.client.accounts == [[TARGET.submission]]


async def test_the_settle_time_begins_anew_where_the_controller_was_silent(stand: Stand) -> None:
    asked.note(str(stand.directory()), "t1", at(0))
    stand.client.silent = "squeue did not answer within 30 s"
    stand.clock.set(at(1000))
    assert str(await find(stand)) == stand.client.silent
    stand.client.silent = None
    assert "until 12:17:40 UTC" in str(await find(stand))
    stand.clock.set(at(1060))
    assert await find(stand) is None


async def test_a_line_that_cannot_be_read_may_be_the_job(stand: Stand) -> None:
    stand.client.unread = (f"7|{TARGET.submission}|||",)
    assert isinstance(await find(stand), CouldNotAsk)
    [look] = await stand.backend.revoke([TARGET])
    assert isinstance(look, CouldNotAsk)
    stand.client.unread = ("7|another|||",)
    assert await find(stand) is None


async def test_what_accounting_alone_knows_was_taken(stand: Stand) -> None:
    stand.client.past = [accounted("CANCELLED")]
    assert await find(stand) == Shown(TARGET, Where.ENDED, begun_at=at(0), ref="7")
    stand.client.past = NoAnswer("sacct ended with 1: no slurmdbd")
    assert str(await find(stand)) == "sacct ended with 1: no slurmdbd"


async def test_without_accounting_the_claim_tells_what_the_queue_has_forgotten(tmp_path: Path) -> None:
    stand = Stand(tmp_path, accounting=False)
    (stand.directory() / "claim").write_text("torn")
    found = await find(stand)
    assert isinstance(found, Shown)
    assert (found.where, found.claimed, found.ran) == (Where.GONE, True, True)
    (stand.directory() / "claim").unlink()
    assert await find(stand) is None
    assert stand.client.accounts == []


async def test_all_who_ask_at_once_share_one_squeue_that_began_after_they_asked() -> None:
    client, goes_on = FakeClient(), asyncio.Event()
    looks = Looks(client, Stand(Path("/nowhere")).clock)  # type: ignore[arg-type] # it has what is used of it
    client.before_the_answer = goes_on.wait
    first = asyncio.create_task(looks.queue())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(looks.queue()) for _ in range(5)]
    await asyncio.sleep(0)
    client.rows = [a_row()]
    goes_on.set()
    assert (await first).jobs == {}
    assert [len((await other).jobs) for other in others] == [1] * 5
    assert client.looks == 2


async def test_nobody_takes_an_older_answer_for_one_that_was_cancelled() -> None:
    client, is_asked = FakeClient(), asyncio.Event()
    looks = Looks(client, Stand(Path("/nowhere")).clock)  # type: ignore[arg-type] # it has what is used of it
    await looks.queue()

    async def hang() -> None:
        is_asked.set()
        client.before_the_answer = at_once
        await asyncio.Event().wait()

    client.before_the_answer = hang
    asking, waiting = asyncio.create_task(looks.queue()), asyncio.create_task(looks.queue())
    await is_asked.wait()
    client.rows = [a_row()]
    asking.cancel()
    assert len((await waiting).jobs) == 1
