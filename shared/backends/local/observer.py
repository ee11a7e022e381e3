"""What this machine shows of its local jobs: cheap enough to be asked every 20 ms with thousands of ended ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from shared.backends.local import layout, locks, processes
from shared.backends.local.files import read_record
from shared.backends.local.names import parse_submission_name
from shared.backends.local.records import ClaimRecord, ExitRecord, SpecRecord, StartedRecord, read_stop_seen
from shared.backends.local.sightings import LocalState, Observation, Seen

__all__ = ["LocalState", "Observation", "Observer", "Seen", "look"]

# A directory's time stamp is as coarse as the kernel's tick (4 to 10 ms): a younger one may hide a change.
_STAMP_SETTLES_NS = 100_000_000
_LIVENESS_SECONDS = 1.0


class Observer:
    """Keeps what it has read: a record is read once, the directory only when it has changed."""

    def __init__(self, root: str | Path) -> None:
        self._root = os.fspath(root)
        self._open = f"{self._root}/{layout.OPEN}"
        self._boot_id = processes.boot_id()
        self._known: set[str] = set()
        self._seen: dict[str, Seen] = {}
        self._live: set[str] = set()  # neither ended nor gone: all that has to be looked at again
        self._listed_stamp: int | None = None
        self._looked_at = -_LIVENESS_SECONDS
        self._answer = Observation(complete=True, submissions=())

    def observe(self) -> Observation:
        """Read what is new, and at most once a second whether running ones are alive. Never raises OSError."""
        try:
            changed = self._read_new_records()
            now = time.monotonic()
            if now - self._looked_at >= _LIVENESS_SECONDS:
                self._looked_at = now
                changed = self._look_for_dead(self._live) or changed
        except OSError as error:
            self._listed_stamp = None
            problem = f"{self._open} could not be read: {error}"
            return Observation(complete=False, submissions=tuple(self._seen.values()), problem=problem)
        if changed:
            self._answer = Observation(complete=True, submissions=tuple(self._seen.values()))
        return self._answer

    def _read_new_records(self) -> bool:
        stamp = os.stat(self._open).st_mtime_ns
        unsure = [submission for submission in self._live if self._seen[submission].claim is None]
        if stamp == self._listed_stamp:
            return self._look_for_dead(unsure)
        settled = abs(time.time_ns() - stamp) > _STAMP_SETTLES_NS
        names = set(os.listdir(self._open))
        fresh, lost = names - self._known, self._known - names
        touched = {split[0] for name in fresh if (split := layout.split_record_name(name)) is not None}
        for name in lost:
            split = layout.split_record_name(name)
            if split is not None:
                touched.add(split[0])
        self._known &= names
        for submission in touched:
            self._read(submission, names)
        self._listed_stamp = stamp if settled else None
        return self._look_for_dead([*unsure, *touched]) or bool(touched)

    def _read(self, submission: str, names: set[str]) -> None:
        records: dict[str, dict[str, object]] = {}
        present = [(kind, name) for kind in layout.RECORD_KINDS if (name := f"{submission}.{kind}.json") in names]
        for kind, name in present:
            if kind == layout.STOP:  # a request, which says nothing of the job
                self._known.add(name)
                continue
            record = read_record(f"{self._open}/{name}")
            # A record under another's name is foreign, and is no record of this one.
            if record is not None and record.get("submission") == submission:
                records[kind] = record
                self._known.add(name)
        moved = _are_moved(self._open, submission, records)
        self._put(submission, _look_once(self._open, submission) if moved else see(submission, records))

    def _put(self, submission: str, seen: Seen | None) -> None:
        if seen is None:
            self._seen.pop(submission, None)
        else:
            self._seen[submission] = seen
        if seen is None or seen.state in (LocalState.EXITED, LocalState.GONE):
            self._live.discard(submission)
        else:
            self._live.add(submission)

    def _look_for_dead(self, submissions: Iterable[str]) -> bool:
        changed = False
        for submission in list(submissions):
            if submission not in self._live:
                continue
            seen = self._seen[submission]
            if is_supervised(self._root, seen, self._boot_id):
                continue
            # It may have recorded its end between our listing and its death: only now is the absence of one telling.
            self._put(submission, look(self._root, submission) or replace(seen, state=LocalState.GONE))
            changed = True
        return changed


def see(submission: str, records: dict[str, dict[str, object]]) -> Seen | None:
    """What the records alone say, as if the supervisor were alive; None when they say nothing of one of ours."""
    parsed = parse_submission_name(submission)
    if parsed is None:
        return None
    spec = SpecRecord.read(records[layout.SPEC]) if layout.SPEC in records else None
    claim = ClaimRecord.read(records[layout.CLAIM]) if layout.CLAIM in records else None
    started = StartedRecord.read(records[layout.STARTED]) if layout.STARTED in records else None
    exit_record = ExitRecord.read(records[layout.EXIT]) if layout.EXIT in records else None
    if exit_record is not None:
        state = LocalState.EXITED
    elif started is not None:
        state = LocalState.RUNNING
    elif claim is not None:
        state = LocalState.CLAIMED
    elif spec is not None:
        state = LocalState.ACCEPTED
    else:
        return None
    stop_seen = read_stop_seen(records[layout.STOP_SEEN]) if layout.STOP_SEEN in records else None
    return Seen(submission, parsed[0], parsed[1], parsed[2], state, spec, claim, started, stop_seen, exit_record)


def is_supervised(root: str, seen: Seen, boot_id: str) -> bool:
    """Does the supervisor live? By its recorded identity; before the claim, by the lock that it holds on its spec."""
    record = seen.claim or seen.started
    if record is not None:
        return processes.is_alive(record.supervisor.fields(), boot_id)
    return locks.is_held(layout.record_path(root, seen.submission, layout.SPEC))


def look(root: str, submission: str, directory: str | None = None) -> Seen | None:
    """One submission, read now; in `directory` when it is released. None: there is no record of it."""
    where = directory if directory is not None else f"{root}/{layout.OPEN}"
    seen = _look_once(where, submission)
    if seen is None or seen.state is LocalState.EXITED:
        return seen
    if directory is None and is_supervised(root, seen, processes.boot_id()):
        return seen
    # Dead as of now: whatever it recorded before is there by now.
    again = _look_once(where, submission)
    if again is None or again.state is LocalState.EXITED:
        return again
    return replace(again, state=LocalState.GONE)


def _look_once(where: str, submission: str) -> Seen | None:
    records = _read_once(where, submission)
    while _are_moved(where, submission, records):
        records = _read_once(where, submission)
    return see(submission, records)


def _read_once(where: str, submission: str) -> dict[str, dict[str, object]]:
    records: dict[str, dict[str, object]] = {}
    for kind in layout.RECORD_KINDS:
        record = read_record(f"{where}/{submission}.{kind}.json") if kind != layout.STOP else None
        if record is not None and record.get("submission") == submission:
            records[kind] = record
    return records


def _are_moved(where: str, submission: str, records: dict[str, dict[str, object]]) -> bool:
    """Did a release move these records while they were read? It moves the exit last: who reads the claim before it is
    moved and the exit after that takes an ended one for a running one, since its supervisor may live for the next."""
    return layout.EXIT not in records and any(
        not os.path.lexists(f"{where}/{submission}.{kind}.json") for kind in records
    )
