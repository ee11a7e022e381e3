"""Which Slurm job of a name is the submission, whether it lives, whether it ran."""

from dataclasses import replace

import pytest

from services.launcher.backend import Shown, Target, Where
from services.launcher.slurm.found import doubles, is_alive, ran, shown, shown_ended, target_of, the_one
from shared.backends.slurm.records import Records
from tests.unit.launcher.slurm.parts import NAME, TARGET, a_row, accounted, at, claimed

EARLY, LATE = a_row(id="9"), a_row(id="10", submitted=1)


@pytest.mark.parametrize(
    ("known", "first", "cancelled"),
    [
        (Records(), EARLY, [LATE]),
        (claimed(0, id="9"), EARLY, [LATE]),
        (claimed(0, id="10"), LATE, [EARLY]),
        (claimed(0, id="8"), None, [LATE, EARLY]),
        (claimed(0, id="9", token="t0"), None, [LATE, EARLY]),
    ],
    ids=["nobody has the claim", "the earlier has it", "the later has it", "one that is gone has it", "an id again"],
)
def test_who_has_the_claim_stays_else_the_earlier(known: Records, first: object, cancelled: list[object]) -> None:
    assert the_one([LATE, EARLY], known) == first
    assert doubles([LATE, EARLY], known) == cancelled


def test_without_a_claim_a_second_one_that_starts_is_left_to_the_claim() -> None:
    running = replace(LATE, state="RUNNING")
    assert doubles([EARLY, running], Records()) == []
    assert doubles([EARLY, running], claimed(0, id="9")) == [running]


def test_what_ends_or_has_ended_is_not_cancelled_again() -> None:
    over = [replace(LATE, state="CANCELLED"), replace(LATE, state="CANCELLED", completing=True)]
    assert [doubles([EARLY, row], claimed(0, id="9")) for row in over] == [[], []]


def test_of_two_of_one_second_the_lower_id_is_the_earlier() -> None:
    assert the_one([replace(LATE, submitted_at=EARLY.submitted_at), EARLY], Records()) == EARLY


@pytest.mark.parametrize(
    ("known", "did"),
    [
        (claimed(0), True),
        (claimed(0, never_ran=[0]), False),
        (claimed(0, started=[0]), True),
        (claimed(0, 1, started=[0], never_ran=[1]), True),
        (claimed(0, 1, never_ran=[0, 1]), False),
        (claimed(0, 1, never_ran=[0]), True),
        (Records(claim_unreadable=True), True),
    ],
    ids=[
        "claimed and no more",
        "revoked before it started",
        "started",
        "ran, was queued again and then revoked",
        "revoked twice",
        "queued again, and nothing known of that run",
        "a claim that nobody can read",
    ],
)
def test_a_claim_has_run_unless_its_runner_recorded_that_none_of_its_runs_did(known: Records, did: bool) -> None:
    assert ran(known) is did


def test_a_claim_is_shown_though_the_queue_has_forgotten_its_job() -> None:
    assert shown(TARGET, [], claimed(0)) == Shown(TARGET, Where.GONE, True, True, at(5), "7")
    assert shown(TARGET, [], claimed(0, never_ran=[0])) == Shown(TARGET, Where.ENDED, True, False, at(5), "7")
    assert shown(TARGET, [], Records(claim_unreadable=True)) == Shown(TARGET, Where.GONE, True, True, None, None)
    assert shown(TARGET, [], Records()) is None


def test_what_was_queued_again_began_with_its_claim() -> None:
    again = a_row("PENDING", submitted=100)
    assert shown(TARGET, [again], claimed(0)) == Shown(TARGET, Where.ALIVE, True, True, at(5), "7")


def test_accounting_alone_shows_an_end_but_not_of_what_was_refused() -> None:
    assert shown_ended(TARGET, [accounted()]) == Shown(TARGET, Where.ENDED, begun_at=at(0), ref="7")
    assert shown_ended(TARGET, [accounted("FAILED", nodes=None, start=at(0), end=at(0))]) is None


@pytest.mark.parametrize("comment", [None, "", "mine", "tidegate/1 t1", "tidegate/1 t1 ../..", "other/1 t1 acme"])
def test_only_a_comment_as_we_write_it_says_whose_a_job_is(comment: str | None) -> None:
    assert target_of(a_row(comment=comment)) is None
    assert target_of(a_row()) == Target(NAME, "acme", TARGET.job, 1)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "SPECIAL_EXIT", "NEWSTATE"])
def test_what_is_not_known_to_have_ended_lives(state: str) -> None:
    assert is_alive(a_row(state))
    assert is_alive(a_row("COMPLETED", completing=True))
    assert not is_alive(a_row("NODE_FAIL"))
