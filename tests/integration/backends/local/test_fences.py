"""An attempt's command starts once, and not at all once the attempt is revoked."""

import json
import os
from datetime import UTC, datetime, timedelta

from shared.backends.local import layout
from shared.backends.local.files import create_record
from shared.backends.local.messages import Claim, LaunchKind, LaunchRequest, ReleaseAnswer
from shared.backends.local.names import submission_name
from shared.backends.local.observer import LocalState, look
from shared.backends.local.records import ExitRecord
from tests.integration.backends.local.harness import Backend, Round, supervise

LEDGER = "echo ran >> ledger"


async def _racers(backend: Backend, job: str) -> list[LaunchRequest]:
    return [await backend.request(job, "sh", "-c", LEDGER, token=token) for token in ("one", "two")]


def _end(backend: Backend, request: LaunchRequest) -> ExitRecord:
    seen = look(backend.client.root, request.submission)
    assert seen is not None
    assert seen.exit is not None, seen
    return seen.exit


def _ledger(backend: Backend, request: LaunchRequest) -> str:
    path = backend.directory(request) / "ledger"
    return path.read_text() if path.exists() else ""


async def test_two_supervisors_racing_for_one_attempt_run_it_once_100_times(backend: Backend) -> None:
    pairs = [await _racers(backend, f"race{index}") for index in range(100)]
    await supervise(backend, *(Round(pair[:: 1 if index % 2 else -1]) for index, pair in enumerate(pairs)))
    winners = set()
    for pair in pairs:
        assert _ledger(backend, pair[0]) == "ran\n"
        ends = {request.submission: _end(backend, request) for request in pair}
        (winner,) = (submission for submission, end in ends.items() if end.ran)
        (loser,) = (submission for submission, end in ends.items() if not end.ran)
        assert (ends[winner].code, ends[loser].code, ends[loser].reason) == (0, 75, "attempt_claimed")
        assert winner in (ends[loser].sentence or "")
        assert await backend.client.claims(backend.directory(pair[0]).parent) == (Claim("claim", winner),)
        winners.add(winner.rpartition(".")[2])
    assert winners == {"one", "two"}, "it was a race"


async def test_the_same_submission_supervised_twice_runs_once_and_keeps_its_record(backend: Backend) -> None:
    request = await backend.request("doubled", "sh", "-c", LEDGER)
    await supervise(backend, Round([request, request]))
    assert _ledger(backend, request) == "ran\n"
    assert _end(backend, request).ran


async def test_an_attempt_revoked_before_the_start_exits_75_and_never_ran(backend: Backend) -> None:
    request = await backend.request("revoked", "sh", "-c", LEDGER)
    await backend.client.revoke(backend.directory(request).parent)
    await supervise(backend, Round([request]))
    end = _end(backend, request)
    assert (end.ran, end.code, end.reason, end.started_at) == (False, 75, "revoked", None)
    assert _ledger(backend, request) == ""


async def test_a_revocation_racing_with_the_start_leaves_no_doubt(backend: Backend) -> None:
    """Revoke, then read the claims: without a claim nothing has started nor will."""
    requests = [await backend.request(f"fence{index}", "sh", "-c", LEDGER) for index in range(100)]
    # From well before the start to well after it; how long either takes is the machine's matter.
    rounds = [Round([request], 200 * index - 10_000) for index, request in enumerate(requests)]
    for request, claimed in zip(requests, await supervise(backend, *rounds), strict=True):
        end = _end(backend, request)
        assert (_ledger(backend, request) == "ran\n") == end.ran
        assert claimed or not end.ran


async def test_a_stop_before_the_start_keeps_it_from_starting(backend: Backend) -> None:
    request = await backend.request("stopped", "sh", "-c", LEDGER)
    create_record(str(backend.record(request.submission, layout.STOP)), {"grace_seconds": 1, "signal": 15})
    await supervise(backend, Round([request]))
    end = _end(backend, request)
    assert (end.ran, end.code, end.reason) == (False, 75, "stopped_before_start")
    assert end.stop_seen_at is not None
    assert _ledger(backend, request) == ""


async def test_the_host_refuses_a_claimed_and_a_revoked_attempt_at_once(backend: Backend) -> None:
    claimed = await backend.request("taken", "sh", "-c", LEDGER)
    create_record(f"{backend.directory(claimed).parent}/claim", {"submission": "test.taken.a1.other"})
    revoked = await backend.request("early", "sh", "-c", LEDGER)
    await backend.client.revoke(backend.directory(revoked).parent)
    answers = await backend.client.launch([claimed, revoked])
    assert [answer.reason for answer in answers] == ["attempt_claimed", "revoked"]
    assert {answer.kind for answer in answers} == {LaunchKind.REFUSED}


async def test_the_same_submission_twice_in_one_batch_runs_once(backend: Backend) -> None:
    request = await backend.request("same", "sh", "-c", LEDGER)
    first, second = await backend.client.launch([request, request])
    assert (first.kind, second.kind) == (LaunchKind.ACCEPTED, LaunchKind.ALREADY)
    await backend.until(request.submission, LocalState.EXITED)
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY
    assert _ledger(backend, request) == "ran\n"


async def test_a_submission_is_never_run_again_after_its_release(backend: Backend) -> None:
    request = await backend.request("released", "sh", "-c", LEDGER)
    await backend.run(request)
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY
    (backend.directory(request).parent / "claim").unlink()
    assert (await backend.launch(request)).kind is LaunchKind.ALREADY, "the released records say so too"
    assert _ledger(backend, request) == "ran\n"


async def test_an_intent_without_a_process_is_launched_again_and_runs_once(backend: Backend) -> None:
    """What a host leaves that is killed between recording the intent and forking."""
    request = await backend.request("intent", "sh", "-c", LEDGER, gpus=3)
    spec: dict[str, object] = {"submission": request.submission, "devices": [0, 1, 2]}
    assert create_record(str(backend.record(request.submission, layout.SPEC)), spec)
    await backend.run(request)
    assert _ledger(backend, request) == "ran\n"


async def test_a_launch_after_its_deadline_is_refused(backend: Backend) -> None:
    request = await backend.request("late", "sh", "-c", LEDGER, not_after=datetime.now(UTC) - timedelta(seconds=1))
    answer = await backend.launch(request)
    assert (answer.kind, answer.reason) == (LaunchKind.REFUSED, "too_late")


async def test_a_claim_that_cannot_be_read_is_still_a_claim(backend: Backend) -> None:
    request = await backend.request("torn", "sh", "-c", LEDGER)
    directory = backend.directory(request).parent
    (directory / "claim").write_text("")
    assert await backend.client.claims(directory) == (Claim("claim", None),)
    assert (await backend.launch(request)).kind is LaunchKind.REFUSED
    await supervise(backend, Round([request]))
    assert _end(backend, request).reason == "attempt_claimed"
    assert _ledger(backend, request) == ""


async def test_a_claim_by_a_link_to_nowhere_is_still_a_claim(backend: Backend) -> None:
    request = await backend.request("link", "sh", "-c", LEDGER)
    os.symlink("/nowhere", backend.directory(request).parent / "claim")
    await supervise(backend, Round([request]))
    assert _end(backend, request).reason == "attempt_claimed"


async def test_no_directory_means_no_claim(backend: Backend) -> None:
    request = await backend.request("none", "true")
    directory = backend.directory(request).parent
    assert await backend.client.claims(directory) == ()
    assert await backend.client.claims(directory.parent / "a2") == ()


async def test_orders_that_make_no_sense_are_refused_one_by_one(backend: Backend) -> None:
    good = await backend.request("good", "true")
    name = submission_name("test", "bad", 1, "t")
    bad = [
        LaunchRequest(name, "..", "bad", "e1", ("true",)),
        LaunchRequest(name, "acme", "bad", "../../..", ("true",)),
        LaunchRequest(name, "acme", "bad", "e1", ()),
        LaunchRequest(name, "acme", "bad", "e1", ("a\0b",)),
        LaunchRequest("not-a-name", "acme", "bad", "e1", ("true",)),
        LaunchRequest(name, "acme", "bad", "e1", ("true",), {"A=B": "1"}),
        LaunchRequest(name, "acme", "bad", "e1", ("true",), gpus=-1),
        LaunchRequest(name, "acme", "bad", "e1", ("true",), gpus=9),
    ]
    answers = await backend.client.launch([*bad, good])
    assert [answer.kind for answer in answers] == [LaunchKind.REFUSED] * len(bad) + [LaunchKind.ACCEPTED]
    assert answers[-2].sentence == "needs 9 GPUs; this machine has 8"
    assert not list(backend.root.glob("open/*bad*"))
    assert json.loads(backend.record(good.submission, layout.SPEC).read_text())["submission"] == good.submission
