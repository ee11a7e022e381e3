"""Where everything of one local backend lies, below its root, and what a name may look like."""

from __future__ import annotations

import os

from shared.backends.local.names import is_name

SOCKET = "host.sock"
HOST_RECORD = "host.json"
HOST_LOCK = "host.lock"
UIDS = "uids.json"
OPEN = "open"
RELEASED = "released"
WORK = "work"

SPEC = "spec"
CLAIM = "claim"
STARTED = "started"
STOP = "stop"
STOP_SEEN = "stop_seen"
KILL = "kill"
EXIT = "exit"
# Of a workstation only, and of no interest once it has ended: its end and its release remove them.
ENDPOINT = "endpoint"
ACTIVITY = "activity"
WORKSTATION_KINDS = (ENDPOINT, ACTIVITY)
# The order in which a release moves them: whatever is left after a crash never looks alive, nor gone.
RECORD_KINDS = (SPEC, STOP, STOP_SEEN, KILL, STARTED, CLAIM, EXIT)

REVOKED = "revoked"


def attempt_directory(root: str, tenant: str, job: str, attempt: int) -> str:
    """`<root>/work/<tenant>/<job>/a<attempt>`: holds claim, revoked, logs/, home/ and the staged directories."""
    for what, name in (("tenant", tenant), ("job", job)):
        if not is_name(name):
            raise ValueError(f"{what} {name!r} cannot be a directory's name: use letters, digits, '-', '_' and '.'")
    return f"{root}/{WORK}/{tenant}/{job}/a{attempt:d}"


def record_path(root: str, submission: str, kind: str) -> str:
    """The record of one kind of a submission that is not released yet."""
    return f"{root}/{OPEN}/{submission}.{kind}.json"


def split_record_name(name: str) -> tuple[str, str] | None:
    """(submission, kind) of a file in `open/`, or None for what is not a record's name."""
    if name.startswith(".") or not name.endswith(".json"):
        return None
    submission, _, kind = name[: -len(".json")].rpartition(".")
    return (submission, kind) if submission and kind in RECORD_KINDS else None


def make_root(root: str) -> None:
    """Create the root's directories. As root, tenants pass through `work/` but list nothing and open no record."""
    shared_mode = 0o711 if os.geteuid() == 0 else 0o700
    os.makedirs(root, mode=shared_mode, exist_ok=True)
    os.chmod(root, shared_mode)
    for name, mode in ((OPEN, 0o700), (RELEASED, 0o700), (WORK, shared_mode)):
        path = f"{root}/{name}"
        os.makedirs(path, exist_ok=True)
        os.chmod(path, mode)


def make_attempt_directory(root: str, tenant: str, job: str, attempt: int, gid: int) -> str:
    """Create the attempt's directory and give its parents the modes that keep other tenants out. Idempotent.

    As root only group `gid`, the tenant's own, passes through `work/<tenant>`; nobody lists it.
    """
    path = attempt_directory(root, tenant, job, attempt)
    as_root = os.geteuid() == 0
    for directory in (f"{root}/{WORK}/{tenant}", f"{root}/{WORK}/{tenant}/{job}", path):
        try:
            os.mkdir(directory, 0o700)
        except FileExistsError:
            status = os.lstat(directory)
            wanted = (0, gid, 0o710) if as_root else (os.geteuid(), status.st_gid, 0o700)
            if (status.st_uid, status.st_gid, status.st_mode & 0o7777) == wanted:
                continue
        if as_root:
            os.chown(directory, 0, gid, follow_symlinks=False)
        os.chmod(directory, 0o710 if as_root else 0o700)
    return path
