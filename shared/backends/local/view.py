"""What jobs see of the file system, as root: enough to run, and nothing of ours besides.

The host gives itself mounts of its own once. Every directory that tenants could not pass through anyway (a home with
mode 0700, say) and every directory to hide is covered by a read-only skeleton, into which only what jobs need is bound:
the backend's root, and the Python that the host runs on. Supervisors inherit it; services keep the real mounts.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence

from shared.backends.local import linux

MOUNTS, PERMISSIONS = "mounts", "permissions"


def isolate(root: str, hidden: Sequence[str]) -> tuple[str, str]:
    """Build the view for this process and its children. (`mounts` or `permissions`, what is missing)."""
    if os.geteuid() != 0:
        return PERMISSIONS, "without root all jobs are one trust domain"
    before = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        linux.unshare_mounts()
        try:
            _cover(root, hidden)
        except OSError:
            linux.enter_mounts(before)
            raise
    except OSError as error:
        return PERMISSIONS, f"no mounts of our own for jobs ({error}): only file modes keep them apart"
    finally:
        os.close(before)
    try:
        # A tenant sees its own processes only: others' command lines are theirs. proc(5), hidepid.
        linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC, "hidepid=2")
    except OSError as error:  # containers may mount, but not this
        return MOUNTS, f"jobs can see that others' processes are there ({error})"
    return MOUNTS, ""


def _cover(root: str, hidden: Sequence[str]) -> None:
    writable = os.path.realpath(root)
    links: dict[str, str] = {}
    exposed = {writable}
    for path in (sys.prefix, sys.base_prefix):
        exposed.add(trace(path, links))
    trace(sys.executable, links)
    closed = [cover for path in exposed if (cover := closed_ancestor(path))]
    covers = _outermost([*closed, *map(os.path.realpath, hidden)])
    # Opened before anything is covered: these descriptors still lead to what lies below.
    bound = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in exposed if _is_below_any(path, covers)}
    before = os.umask(0o066)  # makedirs gives its mode to the last directory only
    try:
        for cover in covers:
            linux.mount("tmpfs", cover, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=0711,size=1m")
        for path, fd in sorted(bound.items()):
            os.makedirs(path, mode=0o711, exist_ok=True)
            linux.mount(f"/proc/self/fd/{fd}", path, None, linux.MS_BIND | linux.MS_REC)
            read_only = 0 if path == writable else linux.MS_RDONLY
            flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | linux.MS_NODEV | read_only
            linux.mount("none", path, None, flags)
        for link, target in links.items():
            if _is_below_any(link, covers) and not _is_below_any(link, list(bound)):
                os.makedirs(os.path.dirname(link), mode=0o711, exist_ok=True)
                os.symlink(target, link)
        for cover in covers:
            flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_NOSUID | linux.MS_NODEV | linux.MS_RDONLY
            linux.mount("none", cover, None, flags)
    finally:
        os.umask(before)
        for fd in bound.values():
            os.close(fd)


def trace(path: str, links: dict[str, str]) -> str:
    """The real path; every symbolic link passed on the way is added to `links` as {where it is: what it says}."""
    waiting = os.path.abspath(path).split("/")[1:]
    walked = ""
    for _ in range(1000):
        if not waiting:
            return walked or "/"
        part = waiting.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            walked = os.path.dirname(walked) if walked else ""
            walked = "" if walked == "/" else walked
            continue
        here = f"{walked}/{part}"
        if os.path.islink(here):
            target = os.readlink(here)
            links[here] = target
            if target.startswith("/"):
                walked = ""
            waiting = [*target.split("/"), *waiting]
        else:
            walked = here
    raise OSError(f"{path} leads through too many links")


def closed_ancestor(path: str) -> str | None:
    """The outermost directory above `path` that others may not pass through, if any."""
    walked = ""
    for part in os.path.dirname(path).split("/")[1:]:
        walked = f"{walked}/{part}"
        if not os.stat(walked).st_mode & stat.S_IXOTH:
            return walked
    return None


def _outermost(paths: Sequence[str]) -> list[str]:
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not _is_below_any(path, kept):
            kept.append(path)
    return kept


def _is_below_any(path: str, directories: Sequence[str]) -> bool:
    return any(path.startswith(f"{directory}/") for directory in directories)
