"""Reading an attempt's output, for `watcher.logs`: never outside the tenant's own path, never through a link."""

import base64
import errno
import os
import stat
from pathlib import Path
from typing import Final

from shared.contracts.ids import is_id
from shared.contracts.queries import LogsAnswer, LogsAsked
from shared.contracts.subjects import is_tenant_name

MOST_BYTES: Final = 512 * 1024
"""In base64 still below the broker's limit of 1 MB a message."""
_NOTHING: Final = LogsAnswer(found=False, data="", next_offset=0, size_bytes=0)
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read(root: Path, asked: LogsAsked) -> LogsAnswer:
    """The bytes from `offset` on. An offset past the end gives none, and the end as the next offset.

    Raises ValueError for what is no tenant, job or attempt, and OSError where the file is there and cannot be read.
    """
    if not is_tenant_name(asked.tenant):
        raise ValueError(f"{asked.tenant!r} is no tenant's name")
    if not is_id(asked.job):
        raise ValueError(f"{asked.job!r} is no job's id")
    if asked.attempt < 1 or asked.offset < 0 or asked.limit_bytes < 0:
        raise ValueError("attempts count from 1; offset and limit are not negative")
    path = ("work", asked.tenant, asked.job, f"a{asked.attempt}", "logs", asked.stream)
    try:
        fd = _open(root, path)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return _NOTHING
        raise
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return _NOTHING
        offset = min(asked.offset, status.st_size)
        data = os.pread(fd, min(asked.limit_bytes, MOST_BYTES), offset)
    finally:
        os.close(fd)
    return LogsAnswer(
        found=True,
        data=base64.b64encode(data).decode("ascii"),
        next_offset=offset + len(data),
        size_bytes=max(status.st_size, offset + len(data)),
    )


def _open(root: Path, path: tuple[str, ...]) -> int:
    """Open step by step: a link anywhere below the root is refused, wherever it leads."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in path[:-1]:
        try:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
        finally:
            os.close(folder)
        folder = deeper
    try:
        return os.open(path[-1], _FILE, dir_fd=folder)
    finally:
        os.close(folder)
