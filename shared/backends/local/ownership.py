"""Giving the staged directory to the tenant, without following anything out of it."""

from __future__ import annotations

import os
import stat


def give(path: str, uid: int, gid: int) -> None:
    """Make `uid` the owner of `path` and of everything below it; links themselves change owner, not their targets.

    A file with hard links from outside keeps its owner: it is somebody else's too.
    """
    inside: dict[tuple[int, int], int] = {}
    linked: list[tuple[str, int, os.stat_result]] = []
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(fd, uid, gid)
        if not os.listdir(fd):
            return
        for here, directories, files, here_fd in os.fwalk(".", dir_fd=fd):
            for name in directories:
                os.chown(name, uid, gid, dir_fd=here_fd, follow_symlinks=False)
            for name in files:
                status = os.lstat(name, dir_fd=here_fd)
                if status.st_nlink > 1 and not stat.S_ISLNK(status.st_mode):
                    key = (status.st_dev, status.st_ino)
                    inside[key] = inside.get(key, 0) + 1
                    linked.append((f"{here}/{name}", status.st_nlink, status))
                elif (status.st_uid, status.st_gid) != (uid, gid):
                    os.chown(name, uid, gid, dir_fd=here_fd, follow_symlinks=False)
        for name, links, status in linked:
            if inside[(status.st_dev, status.st_ino)] == links:
                os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(fd)


def make_private_directory(path: str, uid: int, gid: int) -> None:
    """A directory that only `uid` enters. Idempotent."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    if uid != os.geteuid() and os.geteuid() == 0:
        os.chown(path, uid, gid, follow_symlinks=False)
