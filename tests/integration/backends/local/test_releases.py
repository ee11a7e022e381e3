"""Releasing moves records away once nothing needs them, and what is released is still found."""

import asyncio

import pytest

from shared.backends.local import layout
from shared.backends.local.files import create_record
from shared.backends.local.messages import CouldNotAsk, LaunchKind, ReleaseAnswer
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import Backend

WAITS = "while [ ! -e go ]; do sleep 0.01; done"


async def test_a_live_submission_is_not_released(backend: Backend) -> None:
    request = await backend.request("live", "sh", "-c", WAITS)
    await backend.until(await backend.submit(request), LocalState.RUNNING)
    assert await backend.client.release(request.submission) is ReleaseAnswer.LIVE
    seen = backend.seen(request.submission)
    assert seen is not None
    assert seen.state is LocalState.RUNNING


async def test_a_release_moves_everything_once_and_can_be_repeated(backend: Backend) -> None:
    request = await backend.request("done", "true")
    await backend.run(request)
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED
    assert backend.seen(request.submission) is None
    assert list((backend.root / layout.OPEN).iterdir()) == []
    adopted = await backend.client.adopt(request.submission)
    assert adopted is not None
    assert adopted.state is LocalState.EXITED
    assert await backend.client.find("done", 1) == (adopted,)
    assert await backend.client.find("done", 2) == ()


async def test_a_release_that_was_interrupted_still_reads_as_ended(backend: Backend) -> None:
    request = await backend.request("torn", "true")
    await backend.run(request)
    date = backend.root / layout.RELEASED / "2026-11-30"
    date.mkdir()
    for kind in layout.RECORD_KINDS[:-1]:
        path = backend.record(request.submission, kind)
        if path.exists():
            path.rename(date / path.name)
        seen = await backend.client.adopt(request.submission)
        assert seen is not None
        assert seen.state is LocalState.EXITED, f"after moving {kind}"
    assert await backend.client.release(request.submission) is ReleaseAnswer.RELEASED


async def test_what_never_was_is_absent(backend: Backend) -> None:
    assert await backend.client.release("test.never.a1.t") is ReleaseAnswer.ABSENT
    assert await backend.client.adopt("test.never.a1.t") is None


async def test_what_cannot_be_looked_for_is_not_absent(backend: Backend) -> None:
    await backend.end()
    (backend.root / layout.RELEASED).rename(backend.root / "elsewhere")
    with pytest.raises(CouldNotAsk):
        await backend.client.find("any", 1)
    with pytest.raises(CouldNotAsk):
        await backend.client.release("test.any.a1.t")


async def test_revoking_an_attempt_that_has_no_directory_yet_still_fences_it(backend: Backend) -> None:
    directory = backend.client.attempt_directory("acme", "unstaged", 1)
    await asyncio.gather(*(backend.client.revoke(directory) for _ in range(5)))
    modes = {path.stat().st_mode & 0o077 for path in (directory, *list(directory.parents)[:2])}
    assert modes == {0}, "closed to everybody until it is prepared for its tenant"
    request = await backend.request("unstaged", "true")
    answer = await backend.launch(request)
    assert (answer.kind, answer.reason) == (LaunchKind.REFUSED, "revoked")


async def test_a_record_of_somebody_else_is_not_found(backend: Backend) -> None:
    create_record(str(backend.record("test.mine.a1.t", layout.EXIT)), {"submission": "test.other.a1.t"})
    assert await backend.client.find("mine", 1) == ()
