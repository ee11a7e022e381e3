"""Finding and ending what a dead supervisor left, when it is no longer below any process of ours.

While a supervisor or its host lives nothing is left to find: both are subreapers. Processes are recognised by a marker
in their environment. A program can overwrite that; as root its user, which it cannot change, gives it away too.
"""

from __future__ import annotations

import os
import signal

from shared.backends.local import processes

MARKER = "TIDEGATE_SUBMISSION"
SUPERVISOR_NAME = "tidegate-super"
_LOOKS = 100


def sweep(submission: str, uid: int | None) -> int:
    """SIGKILL what is left of a submission whose supervisor is dead; how many processes there were.

    0 is the proof that nothing is left: every process was looked at, and of those that came meanwhile none escaped.
    `uid` is its tenant's, where tenants have users of their own: any process of that user which has no live supervisor
    above it is left from some dead one, if not from this.
    """
    found = 0
    looked_at: set[int] = set()
    for _ in range(_LOOKS):
        unsure = False
        for pid in set(processes.all_pids()) - looked_at:
            looked_at.add(pid)
            if _kill_if_left(pid, submission, uid):
                found += 1
            # It ended before it could be looked at: it may have been one, and have left another with a newer pid.
            elif processes.start_ticks(pid) is None:
                unsure = True
        if not unsure:
            return found
    return max(found, 1)


def _kill_if_left(pid: int, submission: str, uid: int | None) -> bool:
    if not _is_left(pid, submission, uid):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Looked at again with the pidfd open: a process that has got the pid since is not hit.
        if not _is_left(pid, submission, uid):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def tenant_uid(spec: dict[str, object] | None) -> int | None:
    """The uid to sweep by: None where jobs run as we do."""
    uid = spec.get("uid") if spec is not None else None
    return uid if type(uid) is int and uid != os.geteuid() else None


def _is_left(pid: int, submission: str, uid: int | None) -> bool:
    if processes.start_ticks(pid) is None:
        return False
    if uid is not None:
        return _real_uid(pid) == uid and not _has_supervisor(pid)
    return _is_marked(pid, submission)


def _is_marked(pid: int, submission: str) -> bool:
    wanted = f"{MARKER}={submission}\0".encode()
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return False
    return content.startswith(wanted) or b"\0" + wanted in content


def _real_uid(pid: int) -> int | None:
    try:
        status = processes.read_small(f"/proc/{pid}/status")
    except OSError:
        return None
    return int(status.partition(b"\nUid:")[2].split()[0])


def _has_supervisor(pid: int) -> bool:
    """Is one of its ancestors a supervisor? Only a process of ours has both that name and our uid."""
    for _ in range(20):
        above: int | None = pid
        while above is not None and above > 1:
            fields = processes.stat_fields(above)
            if fields is None:
                break
            if above != pid and fields[0] not in "ZX" and _is_supervisor(above):
                return True
            above = int(fields[1])
        else:
            return False
        if above == pid:
            return True  # it has ended meanwhile: nothing is left to kill
    return True  # its ancestors keep changing: another look will tell


def _is_supervisor(pid: int) -> bool:
    try:
        name = processes.read_small(f"/proc/{pid}/comm").strip()
    except OSError:
        return False
    return name == SUPERVISOR_NAME.encode() and _real_uid(pid) == os.geteuid()
