"""The records that a supervisor writes about its attempt, and the requests that it reads."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from shared.backends.local import layout, processes
from shared.backends.local.complaints import complain
from shared.backends.local.files import create_record, read_record, write_record
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.orders import Order
from shared.runtime import failpoints

SUPERVISOR_FAILED = "supervisor_failed"
_AGAIN_SECONDS = 1.0


class Recorder:
    """One attempt's records, by the process that supervises it."""

    def __init__(self, root: str, order: Order, devices: list[int], *, self_reported: bool) -> None:
        self.root, self.order, self.devices, self.self_reported = root, order, devices, self_reported
        self.attempt_directory = order.attempt_directory(root)
        self.supervisor = processes.identity(os.getpid())
        self._stop_mark: tuple[int, int] | None = None

    def claim(self) -> bool:
        """Take the attempt's claim; False when somebody has it. The one step that makes a command run once only."""
        record: dict[str, object] = {
            "submission": self.order.submission,
            "supervisor": self.supervisor,
            "claimed_at": utc(now_ms()),
        }
        if not create_record(f"{self.attempt_directory}/{layout.CLAIM}", record, durable=True):
            return False
        failpoints.reach("claim.between")
        try:
            os.link(f"{self.attempt_directory}/{layout.CLAIM}", self._path(layout.CLAIM))
        except OSError:  # another file system, or what a power cut has left there
            _persist(self.order.submission, lambda: write_record(self._path(layout.CLAIM), record))
        return True

    def claim_holder(self) -> str | None:
        """The submission that the claim names, if it can be read."""
        record = read_record(f"{self.attempt_directory}/{layout.CLAIM}")
        holder = record.get("submission") if record is not None else None
        return holder if isinstance(holder, str) else None

    def is_revoked(self) -> bool:
        """Look only after taking the claim: whoever revokes looks for claims after revoking."""
        return os.path.lexists(f"{self.attempt_directory}/{layout.REVOKED}")

    def start(self, pid: int, started_ms: int) -> bool:
        """The command is up. False when that could not be written: try again."""
        record: dict[str, object] = {
            "submission": self.order.submission,
            "supervisor": self.supervisor,
            "command": processes.identity(pid),
            "started_at": utc(started_ms),
            "devices": self.devices,
        }
        return _try(self.order.submission, "its start", lambda: write_record(self._path(layout.STARTED), record))

    def stop_request(self) -> dict[str, object] | None:
        """A stop request that was not returned before."""
        path = self._path(layout.STOP)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return None
        mark = (status.st_ino, status.st_mtime_ns)
        if mark == self._stop_mark:
            return None
        record = read_record(path)
        if record is not None:
            self._stop_mark = mark
        return record

    def is_stop_asked(self) -> bool:
        """Has anybody ever asked for the end of this attempt, seen or not?"""
        return os.path.lexists(self._path(layout.STOP))

    def stop_seen(self, seen_ms: int) -> None:
        """Before any signal is sent. A full disk does not keep a job running: the record of the end will say it too."""
        record: dict[str, object] = {"submission": self.order.submission, "stop_seen_at": utc(seen_ms)}
        path = self._path(layout.STOP_SEEN)
        _try(self.order.submission, "that a stop was seen", lambda: write_record(path, record, durable=True))

    def end(
        self,
        *,
        ran: bool,
        code: int | None,
        killed_by: int | None,
        reason: str | None,
        sentence: str | None,
        started_ms: int,
        duration_ms: int,
        stop_seen_ms: int | None,
        max_rss_bytes: int | None,
    ) -> None:
        """How it ended. Does not return without the record: nobody else saw what it says."""
        record: dict[str, object] = {
            "submission": self.order.submission,
            "job": self.order.job,
            "attempt": self.order.attempt,
            "tenant": self.order.tenant,
            "ran": ran,
            "code": code,
            "signal": killed_by,
            "reason": reason,
            "sentence": sentence,
            "started_at": utc(started_ms) if ran else None,
            # The start plus the measured duration: a clock that is set meanwhile lengthens nothing.
            "ended_at": utc(started_ms + duration_ms if ran else now_ms()),
            "duration_ms": duration_ms if ran else 0,
            "recorded_at": utc(now_ms()),
            "stop_seen_at": utc(stop_seen_ms) if stop_seen_ms is not None else None,
            "devices": self.devices,
            "max_rss_bytes": max_rss_bytes,
            "self_reported": self.self_reported,
            "boot_id": self.supervisor["boot_id"],
        }
        _persist(self.order.submission, lambda: write_record(self._path(layout.EXIT), record, durable=True))

    def _path(self, kind: str) -> str:
        return layout.record_path(self.root, self.order.submission, kind)


def end_unbegun(root: str, submission: str, sentence: str) -> None:
    """The end of an attempt that no supervisor could be made for, out of the host's intent: nothing of it ran. Does not
    return without the record."""
    intent = read_record(layout.record_path(root, submission, layout.SPEC)) or {}
    now = utc(now_ms())
    record = {name: intent.get(name) for name in ("job", "attempt", "tenant", "devices", "boot_id")} | {
        "submission": submission,
        "ran": False,
        "code": 126,
        "reason": SUPERVISOR_FAILED,
        "sentence": sentence,
        "ended_at": now,
        "duration_ms": 0,
        "recorded_at": now,
        "self_reported": False,
    }
    _persist(submission, lambda: write_record(layout.record_path(root, submission, layout.EXIT), record, durable=True))


def _try(submission: str, what: str, write: Callable[[], None]) -> bool:
    try:
        write()
    except OSError as error:
        complain(f"{submission}: {what} is not recorded yet: {error}")
        return False
    return True


def _persist(submission: str, write: Callable[[], None]) -> None:
    while not _try(submission, "what has to be", write):
        time.sleep(_AGAIN_SECONDS)
