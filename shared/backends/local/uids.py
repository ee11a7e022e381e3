"""A uid of its own for each tenant, handed out once and kept for ever in `<root>/uids.json`."""

from __future__ import annotations

import os
import pwd

from shared.backends.local import layout, locks
from shared.backends.local.files import read_record, write_record

UID_BASE_VARIABLE = "TIDEGATE_LOCAL_UID_BASE"
UID_BASE = 200_000
# Two backends on one machine must not give two tenants one uid: each starts in a block of its own.
_BLOCK, _BLOCKS = 10_000, 20_000


class UidTableError(Exception):
    """The table cannot be trusted, so no uid is handed out: two tenants must never get the same one."""


def uid_for(root: str, tenant: str) -> int:
    """The uid (and gid) of a tenant's jobs: its own as root, this process's without root."""
    if os.geteuid() != 0:
        return os.geteuid()
    known = _load(root).get(tenant)
    return known if known is not None else _allocate(root, tenant)


def uid_base(root: str) -> int:
    """The first uid of tenants: $TIDEGATE_LOCAL_UID_BASE, or the start of this root's own block above 200000."""
    text = os.environ.get(UID_BASE_VARIABLE)
    if text is None:
        return UID_BASE + _BLOCK * (os.stat(root).st_ino % _BLOCKS)
    if not (text.isascii() and text.isdigit() and 1000 <= int(text) < 2**31 - 2**16):
        raise UidTableError(
            f"{UID_BASE_VARIABLE} is {text!r}; give a number from 1000 to 2147418111, such as {UID_BASE}"
        )
    return int(text)


def _allocate(root: str, tenant: str) -> int:
    fd = os.open(f"{root}/{layout.UIDS}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        locks.take_waiting(fd)
        table = _load(root)
        if tenant not in table:
            uid = max([uid_base(root) - 1, *table.values()]) + 1
            while _is_somebody(uid):
                uid += 1
            table[tenant] = uid
            write_record(f"{root}/{layout.UIDS}", {"uids": table}, durable=True)
        return table[tenant]
    finally:
        os.close(fd)


def _load(root: str) -> dict[str, int]:
    path = f"{root}/{layout.UIDS}"
    if not os.path.lexists(path):  # looked for first: it may come in between, and never goes
        return {}
    record = read_record(path)
    table = record.get("uids") if record is not None else None
    if not isinstance(table, dict) or not all(type(uid) is int and uid >= 1000 for uid in table.values()):
        raise UidTableError(
            f"{path} is not a table of tenants' uids, and a guess could give two tenants the same uid. Restore it from "
            f"a backup, or write it anew from the owners of {root}/{layout.WORK}/*/*/*/home"
        )
    return dict(table)


def _is_somebody(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
