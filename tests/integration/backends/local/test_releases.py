"""Releasing moves records away once nothing needs them, and what is released is still found."""

import asyncio
import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from shared.backends.local import client, ending, layout
from shared.backends.local.files import create_record
from shared.backends.local.messages import CouldNotAsk, LaunchKind, ReleaseAnswer
from shared.backends.local.observer import LocalState, Seen, look
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


async def test_what_another_releases_while_it_is_looked_for_is_found(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await backend.request("moving", "true")
    await backend.run(request)

    def released_first(root: str, submission: str, directory: str | None = None) -> Seen | None:
        ending.release(root, submission)  # the first one of its day, which makes the day's directory
        return look(root, submission, directory)

    monkeypatch.setattr(client, "look", released_first)
    adopted = await backend.client.adopt(request.submission)
    assert adopted is not None
    assert await backend.client.find("moving", 1) == (adopted,)


async def test_what_was_released_is_shown_page_by_page(backend: Backend) -> None:
    names = set()
    for number in range(5):
        request = await backend.request(f"paged{number}", "true")
        await backend.run(request)
        await backend.client.release(request.submission)
        names.add(request.submission)
    pages = [page async for page in backend.client.released(None, page=2)]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert {seen.submission for page in pages for seen in page} == names
    assert all(seen.exit is not None for page in pages for seen in page)


async def test_only_what_was_released_lately_is_shown_where_that_is_asked(backend: Backend) -> None:
    request = await backend.request("late", "true")
    await backend.run(request)
    await backend.client.release(request.submission)
    now = datetime.now(UTC)
    shown = [page async for page in backend.client.released(now - timedelta(minutes=5))]
    assert [seen.submission for page in shown for seen in page] == [request.submission]
    assert [page async for page in backend.client.released(now + timedelta(hours=2))] == []


async def test_old_records_are_purged_in_bounded_steps_and_what_they_were_of_still_never_runs_again(
    backend: Backend,
) -> None:
    old, young = await backend.request("old", "true"), await backend.request("young", "true")
    for request in (old, young):
        await backend.run(request)
        await backend.client.release(request.submission)
    (today,) = (backend.root / layout.RELEASED).iterdir()
    earlier = today.with_name("2026-11-20")
    earlier.mkdir()
    for path in today.glob(f"{old.submission}.*"):
        path.rename(earlier / path.name)
    files = len(list(earlier.iterdir()))
    assert files > 2
    at = datetime(2026, 11, 20, 23, 59, tzinfo=UTC)
    assert await backend.client.purge_released(at, 100) == 0
    assert await backend.client.purge_released(at + timedelta(days=1), 2) == 2
    assert await backend.client.purge_released(at + timedelta(days=1), 100) == files - 2
    assert not earlier.exists()
    assert await backend.client.adopt(old.submission) is None
    assert await backend.client.adopt(young.submission) is not None
    assert (await backend.launch(old)).kind is LaunchKind.ALREADY


async def test_a_stop_request_for_what_was_released_meanwhile_is_not_left_behind(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = await backend.request("stopped-late", "true")
    await backend.run(request)
    seen = backend.seen(request.submission)
    await backend.client.release(request.submission)
    looks = iter([dataclasses.replace(seen, state=LocalState.RUNNING)] if seen else [])
    monkeypatch.setattr(ending, "look", lambda root, name: next(looks, None))
    await backend.client.stop(request.submission, 1)
    assert list((backend.root / layout.OPEN).iterdir()) == []


async def test_what_a_killed_writer_has_left_is_removed_once_it_is_old(backend: Backend) -> None:
    request = await backend.request("torn-write", "true")
    await backend.run(request)
    left = backend.record(request.submission, layout.STOP).with_name(".x.stop.json.0123456789abcdef.tmp")
    left.write_text("{")
    before = sorted(left.parent.iterdir())
    await backend.client.remove_torn(datetime.now(UTC) - timedelta(hours=1))
    assert sorted(left.parent.iterdir()) == before
    await backend.client.remove_torn(datetime.now(UTC) + timedelta(minutes=1))
    assert set(before) - set(left.parent.iterdir()) == {left}
