"""Records as small JSON files that are there whole or not at all.

Writers never touch a file in place. Readers get `None` for whatever is not a whole record (missing, empty, torn by a
power cut, not a regular file, not a JSON object), and OSError only when the file could not be looked at.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat

RECORD_BYTES_MAX = 1 << 20
_TEMPORARY = ".tmp"


def read_record(path: str) -> dict[str, object] | None:
    """The record at `path`, or None where there is none. Raises OSError when it cannot be known."""
    try:
        # O_NONBLOCK and O_NOFOLLOW: without root a job can put a FIFO or a link where its records are.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR):
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        content = b""
        while len(content) <= RECORD_BYTES_MAX:
            part = os.read(fd, RECORD_BYTES_MAX + 1 - len(content))
            if not part:
                break
            content += part
    finally:
        os.close(fd)
    if len(content) > RECORD_BYTES_MAX:
        return None
    try:
        record = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def write_record(path: str, record: dict[str, object], *, durable: bool = False) -> None:
    """Put `record` at `path` in one step, replacing what is there. With `durable` it survives a power cut."""
    temporary = _write_beside(path, record, durable=durable)
    os.rename(temporary, path)
    if durable:
        sync_directory(os.path.dirname(path))


def create_record(path: str, record: dict[str, object], *, durable: bool = False) -> bool:
    """Put `record` at `path` unless something is there already; True when this call did it. Exclusive by link(2)."""
    temporary = _write_beside(path, record, durable=durable)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(temporary)
    if durable:
        sync_directory(os.path.dirname(path))
    return True


def sync_directory(path: str) -> None:
    """Make the names in a directory survive a power cut."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def temporary_beside(path: str) -> str:
    """A name in the same directory that no reader looks at and no other thread uses, in whatever pid namespace."""
    directory, name = os.path.split(path)
    return f"{directory}/.{name}.{os.urandom(8).hex()}{_TEMPORARY}"


def remove_torn(directory: str, before: float) -> None:
    """Remove what writers that were killed have left beside records, where it is older than the moment `before`."""
    for name in os.listdir(directory):
        if name.startswith(".") and name.endswith(_TEMPORARY):
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(f"{directory}/{name}").st_mtime < before:
                    os.unlink(f"{directory}/{name}")


def write_whole(fd: int, content: bytes) -> None:
    """write(2) until everything is written."""
    while content:
        content = content[os.write(fd, content) :]


def _write_beside(path: str, record: dict[str, object], *, durable: bool) -> str:
    temporary = temporary_beside(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_whole(fd, json.dumps(record).encode())
        if durable:
            os.fsync(fd)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    return temporary
