"""What was released: kept in a directory a day, for as long as a restored database may have to learn of it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta

from shared.backends.local import layout
from shared.backends.local.files import read_record
from shared.backends.local.observer import Seen, look

_MARGIN = timedelta(hours=1)
_DAY = timedelta(days=1)


def days(root: str) -> list[str]:
    """Names of the directories, oldest first."""
    return sorted(name for name in os.listdir(f"{root}/{layout.RELEASED}") if _is_day(name))


def read_any(root: str, submission: str, kind: str) -> dict[str, object] | None:
    """One record of a submission, released or not; None where there is none. Days are listed only once `open/` was
    looked at: what is released in between is found in one or the other."""
    record = read_record(layout.record_path(root, submission, kind))
    if record is None:
        for day in reversed(days(root)):
            record = read_record(f"{root}/{layout.RELEASED}/{day}/{submission}.{kind}.json")
            if record is not None:
                break
    return record


def pages(root: str, since: datetime | None, size: int) -> Iterator[tuple[Seen, ...]]:
    """Every submission that was released after `since` (and some from before), oldest day first, `size` at a time."""
    for day in days(root):
        if since is not None and day < f"{since - _DAY:%Y-%m-%d}":
            continue
        where = f"{root}/{layout.RELEASED}/{day}"
        names = sorted(_released_in(where, since))
        for start in range(0, len(names), size):
            found = (look(root, name, where) for name in names[start : start + size])
            yield tuple(seen for seen in found if seen is not None)


def purge(root: str, before: datetime, limit: int) -> int:
    """Remove at most `limit` files of days that were over at `before`; how many it were. Two may do so at once."""
    removed = 0
    for day in days(root):
        if day > f"{before - _DAY:%Y-%m-%d}":
            break
        where = f"{root}/{layout.RELEASED}/{day}"
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(where):
                if removed == limit:
                    return removed
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{where}/{name}")
                removed += 1
        with contextlib.suppress(OSError):  # another was faster, or something is there that is no record
            os.rmdir(where)
    return removed


def _released_in(where: str, since: datetime | None) -> set[str]:
    """By the change time of the files, which a rename sets and nobody can set back."""
    oldest = None if since is None else (since - _MARGIN).timestamp()
    found = set()
    with contextlib.suppress(FileNotFoundError), os.scandir(where) as entries:
        for entry in entries:
            split = layout.split_record_name(entry.name)
            if split is None:
                continue
            with contextlib.suppress(FileNotFoundError):
                if oldest is None or entry.stat(follow_symlinks=False).st_ctime >= oldest:
                    found.add(split[0])
    return found


def _is_day(name: str) -> bool:
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False
