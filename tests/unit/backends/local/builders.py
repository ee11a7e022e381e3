"""Records of a submission as its host and supervisor write them, with live or dead processes behind them."""

from __future__ import annotations

import json
import os
from pathlib import Path

from shared.backends.local import layout, processes
from shared.backends.local.files import write_record

Fields = dict[str, object]


class Records:
    """A root with records written by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        layout.make_root(str(root))

    def path(self, submission: str, kind: str) -> Path:
        """Where the record lies."""
        return Path(layout.record_path(str(self.root), submission, kind))

    def write(self, submission: str, kind: str, /, **fields: object) -> None:
        """One record, with `fields` over what is usual for its kind."""
        record = {"submission": submission} | USUAL[kind] | fields
        write_record(str(self.path(submission, kind)), record)

    def tear(self, submission: str, kind: str, keep: int) -> None:
        """What a power cut leaves of a record: its first bytes."""
        content = json.dumps({"submission": submission} | USUAL[kind]).encode()
        self.path(submission, kind).write_bytes(content[:keep])


def me() -> Fields:
    """A live process: this one."""
    return processes.identity(os.getpid())


def dead() -> Fields:
    """A process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    identity = processes.identity(pid) | {"start_ticks": 1}
    os.waitpid(pid, 0)
    return identity


USUAL: dict[str, Fields] = {
    layout.SPEC: {
        "tenant": "acme",
        "run": "j1",
        "directory": "e1",
        "command": ["true"],
        "devices": [0, 1],
        "accepted_at": "2026-11-30T09:00:00.000Z",
    },
    layout.CLAIM: {"supervisor": me(), "claimed_at": "2026-11-30T09:00:01.000Z"},
    layout.STARTED: {
        "supervisor": me(),
        "command": None,
        "started_at": "2026-11-30T09:00:02.000Z",
        "devices": [0, 1],
    },
    layout.STOP: {"at": "2026-11-30T09:00:02.900Z", "grace_seconds": 10, "signal": 15, "pausing": False},
    layout.KILL: {"supervisor": me(), "at": "2026-11-30T09:00:04.000Z"},
    layout.STOP_SEEN: {"stop_seen_at": "2026-11-30T09:00:03.000Z"},
    layout.EXIT: {
        "job": "j1",
        "attempt": 1,
        "tenant": "acme",
        "ran": True,
        "code": 0,
        "signal": None,
        "reason": None,
        "sentence": None,
        "started_at": "2026-11-30T09:00:02.000Z",
        "ended_at": "2026-11-30T09:00:04.500Z",
        "duration_ms": 2500,
        "stop_seen_at": None,
        "devices": [0, 1],
        "max_rss_bytes": 1024,
        "self_reported": False,
    },
}
