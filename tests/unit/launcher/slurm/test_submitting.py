"""Launches go to sbatch: noted before, once, and none keeps the others waiting."""

import os
from pathlib import Path

import pytest

from services.launcher.slurm import asked, submitting
from shared.backends.local.messages import LaunchAnswer, LaunchKind, LaunchRequest
from shared.backends.slurm.answers import Refused, Submitted, Unclear
from tests.unit.launcher.slurm.parts import Stand, a_request, a_row, at

ACCEPTED, ALREADY, BUSY, REFUSED, UNCLEAR = (
    LaunchKind.ACCEPTED,
    LaunchKind.ALREADY,
    LaunchKind.BUSY,
    LaunchKind.REFUSED,
    LaunchKind.UNCLEAR,
)


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


async def launch(stand: Stand, *requests: LaunchRequest) -> list[LaunchAnswer]:
    for request in requests:
        stand.directory(request.run)
    return await stand.backend.launch(requests)


async def test_a_call_is_noted_before_it_is_made(stand: Stand) -> None:
    request = a_request()
    noted: list[object] = []

    def look(_: object) -> Submitted:
        noted.append(asked.last_over_at(str(stand.directory(request.run))))
        return Submitted("7", None)

    stand.client.answers = look
    [answer] = await launch(stand, request)
    assert (answer.kind, answer.ref) == (ACCEPTED, "7")
    assert noted == [at(40)]
    assert stand.client.looks == 0


async def test_what_was_asked_for_before_is_looked_for_and_not_asked_for_again(stand: Stand) -> None:
    request = a_request()
    asked.note(str(stand.directory(request.run)), "t0", at(-1000))
    stand.client.rows = [a_row()]
    [answer] = await launch(stand, request)
    assert (answer.kind, answer.sentence) == (ALREADY, "it is Slurm job 7")
    assert stand.client.submitted == []


async def test_one_that_hangs_keeps_no_other_waiting_and_its_job_is_looked_for(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "_PATIENCE_SECONDS", 0.2)
    hanging, *others = requests = [a_request(number) for number in range(6)]
    stand.client.answers = lambda order: None if order.name == hanging.submission else Submitted("8", None)
    answers = await launch(stand, *requests)
    assert [answer.kind for answer in answers] == [UNCLEAR] + [ACCEPTED] * len(others)
    assert asked.last_over_at(str(stand.directory(hanging.run))) == at(40)


async def test_a_silent_controller_is_asked_once_before_more_is_submitted(stand: Stand) -> None:
    stand.client.answers = lambda order: Unclear("sbatch ended with 1: Socket timed out")
    first = a_request(1)
    [answer] = await launch(stand, first)
    assert answer.kind == UNCLEAR
    assert asked.last_over_at(str(stand.directory(first.run))) == at(0), "it is over, so the settle time begins"
    stand.client.silent = "squeue ended with 1"
    answers = await launch(stand, *(a_request(number) for number in range(2, 9)))
    assert [answer.kind for answer in answers] == [BUSY] * 7
    assert (len(stand.client.submitted), stand.client.looks) == (1, 1)
    stand.client.silent, stand.client.answers = None, lambda order: Submitted("9", None)
    answers = await launch(stand, *(a_request(number) for number in range(2, 9)))
    assert [answer.kind for answer in answers] == [ACCEPTED] * 7


async def test_what_is_refused_for_now_leaves_nothing_and_is_not_asked_for_all_the_time(tmp_path: Path) -> None:
    stand = Stand(tmp_path, submissions_at_once=1)
    stand.client.answers = lambda order: Refused("MaxJobCount limit reached", "queue_full", passing=True)
    requests = [a_request(number) for number in range(5)]
    answers = await launch(stand, *requests)
    assert {(answer.kind, answer.sentence) for answer in answers} == {(BUSY, "MaxJobCount limit reached")}
    [answer] = await launch(stand, a_request(6, coretype="gpu"))
    assert answer.kind == BUSY
    assert len(stand.client.submitted) == 2, "once for each kind of job"
    left = {path.name for request in requests for path in stand.directory(request.run).iterdir()}
    assert left <= {"logs", "home"}


async def test_what_is_refused_for_good_says_whose_matter_it_is(stand: Stand) -> None:
    words = {0: Refused("Invalid partition name specified", "partition", False), 1: Refused("Too big", "size", False)}
    stand.client.answers = lambda order: words[int(order.name.split(".")[1][-1])]
    answers = await launch(stand, a_request(0), a_request(1))
    assert [(answer.kind, answer.reason) for answer in answers] == [(REFUSED, "configuration"), (REFUSED, "size")]
    assert answers[0].sentence == "Slurm refused it: Invalid partition name specified"


async def test_a_revoked_attempt_is_not_submitted(stand: Stand) -> None:
    request = a_request()
    (stand.directory(request.run) / "revoked").touch()
    [answer] = await launch(stand, request)
    assert (answer.kind, answer.reason) == (REFUSED, "revoked")
    assert stand.client.submitted == []


async def test_what_might_outlive_its_lease_is_not_submitted(stand: Stand) -> None:
    [answer] = await launch(stand, a_request(not_after=at(39)))
    assert answer.kind == BUSY
    assert stand.client.submitted == []


async def test_an_order_that_can_be_no_script_is_refused_alone(stand: Stand) -> None:
    answers = await launch(stand, a_request(1, command=("a\0b",)), a_request(2))
    assert [(answer.kind, answer.reason) for answer in answers] == [(REFUSED, "invalid_order"), (ACCEPTED, None)]


async def test_an_attempt_without_a_directory_waits_and_says_so(stand: Stand) -> None:
    [answer] = await stand.backend.launch([a_request()])
    assert answer.kind == BUSY
    assert answer.sentence.startswith("the attempt's directory could not be read or written: ")
    assert stand.client.submitted == []


async def test_nothing_runs_as_root_unless_that_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    [refused] = await launch(Stand(tmp_path, allow_root=False), a_request())
    assert (refused.kind, refused.reason) == (REFUSED, "configuration")
    assert "set allow_root = true" in refused.sentence
    [taken] = await launch(Stand(tmp_path, allow_root=False, prefix=("setpriv", "--reuid=1000")), a_request())
    assert taken.kind == ACCEPTED
