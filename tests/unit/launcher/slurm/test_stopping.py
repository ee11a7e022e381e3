"""Attempts on a cluster are revoked, stopped and swept."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.launcher.backend import Holder, Shown, Where
from shared.backends.local.messages import CouldNotAsk
from tests.unit.launcher.slurm.parts import TARGET, Stand, a_row

ANOTHER = replace(TARGET, submission=TARGET.submission.replace("00000.", "00001."), job=TARGET.job[:-1] + "1")


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def test_what_waits_without_a_claim_is_cancelled_and_then_nobody_holds_it(stand: Stand) -> None:
    stand.client.rows = [a_row("PENDING")]
    assert await stand.backend.revoke([TARGET]) == [()]
    assert stand.client.cancelled == [("7", None)]
    assert (stand.directory() / "revoked").exists()


async def test_what_cannot_be_asked_seals_nothing(stand: Stand) -> None:
    stand.client.silent = "squeue did not answer within 30 s"
    [look] = await stand.backend.revoke([TARGET])
    assert str(look) == stand.client.silent
    with pytest.raises(CouldNotAsk):
        await stand.backend.kill(TARGET)
    assert await stand.backend.shown() == []


async def test_who_has_the_claim_lives_while_a_job_of_the_name_does(stand: Stand) -> None:
    (stand.directory() / "claim").write_text("torn")
    for rows, where in (([a_row("RUNNING")], Where.ALIVE), ([a_row("FAILED")], Where.ENDED), ([], Where.GONE)):
        stand.client.rows = rows
        [look] = await stand.backend.revoke([TARGET])
        assert look == (Holder(TARGET.submission, Shown(TARGET, where, True, True)),)
    assert stand.client.cancelled == []


async def test_one_that_cannot_be_read_holds_nobody_else_up(stand: Stand) -> None:
    stand.client.unread = (f"7|{TARGET.submission}|||",)
    unread, other = await stand.backend.revoke([TARGET, ANOTHER])
    assert isinstance(unread, CouldNotAsk)
    assert other == ()


@pytest.mark.parametrize(
    ("state", "grace", "cancelled"),
    [("RUNNING", 10, [("7", "USR2")]), ("PENDING", 10, [("7", None)]), ("RUNNING", 0, [("7", None)])],
)
async def test_a_stop_is_written_before_anybody_is_told(
    stand: Stand, state: str, grace: float, cancelled: list[object]
) -> None:
    stand.directory()
    stand.client.rows = [a_row(state)]
    await stand.backend.stop(TARGET, grace, 15, pausing=False)
    assert (stand.directory() / "stop").read_text().startswith(f"stop TERM {grace:d} ")
    assert stand.client.cancelled == cancelled


async def test_a_sealed_attempt_whose_comment_was_changed_is_still_shown(stand: Stand) -> None:
    stand.client.rows = [a_row(comment="mine now"), a_row("COMPLETED", id="8"), a_row(name="train", id="9")]
    [shown] = await stand.backend.shown()
    assert (shown.target.submission, shown.target.tenant) == (TARGET.submission, "acme")
    stand.client.rows = [a_row(comment=None)]
    [shown] = await stand.backend.shown()
    assert shown.target == replace(TARGET, tenant="")


async def test_values_of_environments_are_removed_with_the_release(stand: Stand) -> None:
    (stand.directory() / "env.t1").write_text("KEY=secret")
    await stand.backend.release([TARGET])
    assert list(stand.directory().iterdir()) == []
