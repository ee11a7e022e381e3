"""The launcher's side of the local backend: launch, stop, revoke, kill, release, find.

Everything but `launch` and `status` works on the records alone, so that it works while no host runs. "Could not ask" is
always a result of its own (`unclear`, or CouldNotAsk), never an absence.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from shared.backends.local import ending, layout, released, uids
from shared.backends.local.files import read_record, remove_torn, sync_directory
from shared.backends.local.host_connection import HostUnreachable, ask
from shared.backends.local.messages import (
    Claim,
    CouldNotAsk,
    HostStatus,
    KillAnswer,
    LaunchAnswer,
    LaunchKind,
    LaunchRequest,
    ReleaseAnswer,
    StopAnswer,
)
from shared.backends.local.names import parse_submission_name
from shared.backends.local.observer import Seen, look
from shared.runtime import failpoints

_LAUNCH_SECONDS = 10.0
_LAUNCH_SECONDS_EACH = 0.05

T = TypeVar("T")
V = TypeVar("V")


class LocalClient:
    """One local backend, by its root directory. Safe to share between tasks; holds no connection."""

    def __init__(self, root: str | Path) -> None:
        self.root = os.path.realpath(root)

    async def launch(self, requests: Sequence[LaunchRequest]) -> list[LaunchAnswer]:
        """One answer a request, in order. Idempotent by submission: after `unclear`, launch the same again."""
        if not requests:
            return []
        lines = [request.fields() for request in requests]
        try:
            reply = await ask(
                self.root,
                {"op": "launch", "launches": lines},
                timeout=_LAUNCH_SECONDS + _LAUNCH_SECONDS_EACH * len(requests),
            )
            answers = reply.get("answers")
            if not isinstance(answers, list) or len(answers) != len(requests):
                raise HostUnreachable(f"the local host gave no answers: {reply.get('error', reply)}")
        except HostUnreachable as error:
            return [LaunchAnswer(request.submission, LaunchKind.UNCLEAR, None, str(error)) for request in requests]
        return [
            LaunchAnswer.read(request.submission, answer) for request, answer in zip(requests, answers, strict=True)
        ]

    async def status(self) -> HostStatus:
        """The host, its GPUs and slots as it counts them now. Raises CouldNotAsk while no host answers."""
        try:
            return HostStatus.read(await ask(self.root, {"op": "status"}, timeout=5.0))
        except HostUnreachable as error:
            raise CouldNotAsk(str(error)) from error

    async def stop(
        self, submission: str, grace_seconds: float, signal_number: int = signal.SIGTERM, *, pausing: bool = False
    ) -> StopAnswer:
        """Ask for the end: the signal to all its processes now, SIGKILL after the grace. On disk when this returns.

        A stop after a pause counts with its own grace; a pause after a stop changes nothing; of two stops, or two
        pauses, the shorter grace counts. A submission that has not started yet will not.
        """
        return await self._in_thread(
            lambda: ending.stop(self.root, submission, grace_seconds, signal_number, pausing=pausing)
        )

    async def kill(self, submission: str, timeout_seconds: float = 30.0) -> KillAnswer:
        """End it now and wait: for the record of its end, or for the proof that nothing of it is left.

        Revoke the attempt first: this ends what runs, and only `revoked` keeps what has not begun from beginning.
        """
        return await self._in_thread(lambda: ending.kill(self.root, submission, timeout_seconds))

    async def release(self, submission: str) -> ReleaseAnswer:
        """Move the records of an ended submission to `released/<date>/`. Idempotent; never touches a live one."""
        return await self._in_thread(lambda: ending.release(self.root, submission))

    async def revoke(self, attempt_directory: str | Path) -> None:
        """From now on no submission starts this attempt's command. Idempotent; survives a power cut.

        What has taken the claim before may have looked already: read `claims` after this, and kill what is there.
        """
        await self._in_thread(lambda: _revoke(os.fspath(attempt_directory)))

    async def claims(self, attempt_directory: str | Path) -> tuple[Claim, ...]:
        """Who may have started the command of this attempt. Empty only when that is certain."""
        return await self._in_thread(lambda: _claims(os.fspath(attempt_directory)))

    async def revoke_all(self, directories: Sequence[str | Path]) -> list[tuple[Claim, ...] | CouldNotAsk]:
        """Revoke each, then read its claims: for many attempts this costs one change of threads, not two for each.

        Where there is a claim, it is what keeps every other submission out after a power cut: it was synced when it was
        taken, so `revoked` need not be.
        """

        def revoke_and_read(directory: str | Path) -> tuple[Claim, ...]:
            _revoke(os.fspath(directory), durable=False)
            failpoints.reach("revoke.after")
            claims = _claims(os.fspath(directory))
            if not claims:
                _revoke(os.fspath(directory))
            return claims

        return await self._for_each(revoke_and_read, directories)

    async def adopt_all(self, submissions: Sequence[str]) -> list[Seen | CouldNotAsk | None]:
        """`adopt` for many."""
        return await self._for_each(lambda submission: _adopt(self.root, submission), submissions)

    async def release_all(self, submissions: Sequence[str]) -> list[ReleaseAnswer | CouldNotAsk]:
        """`release` for many."""
        return await self._for_each(lambda submission: ending.release(self.root, submission), submissions)

    async def find(self, job: str, attempt: int) -> tuple[Seen, ...]:
        """Every recorded submission of the attempt, released ones included: adopt before you launch."""
        return await self._in_thread(lambda: _find(self.root, job, attempt))

    async def adopt(self, submission: str) -> Seen | None:
        """This submission as it is now, released or not; None when there is no record of it."""
        return await self._in_thread(lambda: _adopt(self.root, submission))

    async def released(self, since: datetime | None, *, page: int = 500) -> AsyncIterator[tuple[Seen, ...]]:
        """Every submission that was released after `since` (and some from before), page by page."""
        pages = released.pages(self.root, since, page)
        while (seen := await self._in_thread(lambda: next(pages, None))) is not None:
            yield seen

    async def purge_released(self, before: datetime, limit: int) -> int:
        """Remove at most `limit` records of days that were over at `before`; how many it were."""
        return await self._in_thread(lambda: released.purge(self.root, before, limit))

    async def remove_torn(self, before: datetime) -> None:
        """Remove what writers that were killed before `before` have left among the open records."""
        await self._in_thread(lambda: remove_torn(f"{self.root}/{layout.OPEN}", before.timestamp()))

    async def uid_for(self, tenant: str) -> int:
        """The uid (and gid) under which the tenant's jobs run: its own for ever as root, ours without root."""
        return await self._in_thread(lambda: uids.uid_for(self.root, tenant))

    def attempt_directory(self, tenant: str, job: str, attempt: int) -> Path:
        """Where the attempt's claim, logs and staged directories are, whether or not it exists."""
        return Path(layout.attempt_directory(self.root, tenant, job, attempt))

    async def make_attempt_directory(self, tenant: str, job: str, attempt: int) -> Path:
        """Create it, closed to other tenants. Idempotent: whoever comes first, stager or host, makes the same."""

        def make() -> Path:
            uid = uids.uid_for(self.root, tenant)
            gid = uid if os.geteuid() == 0 else os.getegid()
            layout.make_root(self.root)
            return Path(layout.make_attempt_directory(self.root, tenant, job, attempt, gid))

        return await self._in_thread(make)

    @staticmethod
    async def _for_each(work: Callable[[V], T], items: Sequence[V]) -> list[T | CouldNotAsk]:
        """One answer an item, in order; what could not be asked of one is no matter of the others."""

        def all_of_them() -> list[T | CouldNotAsk]:
            answers: list[T | CouldNotAsk] = []
            for item in items:
                try:
                    answers.append(work(item))
                except OSError as error:
                    answers.append(CouldNotAsk(f"the local records could not be read or written: {error}"))
            return answers

        return await asyncio.to_thread(all_of_them)

    @staticmethod
    async def _in_thread(work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise CouldNotAsk(f"the local records could not be read or written: {error}") from error


def _revoke(attempt_directory: str, *, durable: bool = True) -> None:
    _make_closed(attempt_directory)
    fd = os.open(
        f"{attempt_directory}/{layout.REVOKED}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    try:
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    if durable:
        sync_directory(attempt_directory)


def _make_closed(directory: str) -> None:
    """Every directory that is missing is made for us alone: os.makedirs would leave the upper ones open."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        _make_closed(os.path.dirname(directory))
        _make_closed(directory)


def _claims(attempt_directory: str) -> tuple[Claim, ...]:
    try:
        names = sorted(os.listdir(attempt_directory))
    except FileNotFoundError:
        return ()
    found = []
    for name in names:
        if name == layout.CLAIM or name.startswith(f"{layout.CLAIM}."):
            record = read_record(f"{attempt_directory}/{name}")
            holder = record.get("submission") if record is not None else None
            found.append(Claim(name, holder if isinstance(holder, str) else None))
    return tuple(found)


def _find(root: str, job: str, attempt: int) -> tuple[Seen, ...]:
    found: dict[str, Seen] = {}
    for directory in _record_directories(root):
        for name in _names(root, directory):
            split = layout.split_record_name(name)
            parsed = parse_submission_name(split[0]) if split is not None else None
            if split is not None and parsed is not None and parsed[1:3] == (job, attempt) and split[0] not in found:
                seen = look(root, split[0], None if directory == layout.OPEN else f"{root}/{directory}")
                if seen is not None:
                    found[split[0]] = seen
    return tuple(found.values())


def _names(root: str, directory: str) -> list[str]:
    try:
        return os.listdir(f"{root}/{directory}")
    except FileNotFoundError:
        if directory == layout.OPEN:
            raise
        return []  # a day that has just been purged


def _adopt(root: str, submission: str) -> Seen | None:
    for directory in _record_directories(root):
        seen = look(root, submission, None if directory == layout.OPEN else f"{root}/{directory}")
        if seen is not None:
            return seen
    return None


def _record_directories(root: str) -> Iterator[str]:
    """Days are listed only once `open/` was looked at: what is released in between is found in one or the other."""
    yield layout.OPEN
    for day in reversed(released.days(root)):
        yield f"{layout.RELEASED}/{day}"
