"""The local backend's runner host, seen from the stack: it and its jobs outlive the stack and are found again."""

import json
import signal
from typing import Final

from infra.embedded.home import Home
from infra.embedded.processes import Identity
from shared.backends.local import layout, locks

RUNNER: Final = "runner"
"""Its name in the stack."""


def running_host(home: Home) -> Identity | None:
    """The host of this home that outlived an earlier stack; None where none runs."""
    if not locks.is_held(str(home.local / layout.HOST_LOCK)):
        return None
    try:
        pid = int(json.loads((home.local / layout.HOST_RECORD).read_text())["host"]["pid"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None  # it is only just starting
    return Identity.of(pid)


def running_jobs(home: Home) -> int:
    """How many jobs run under this home's host, or under supervisors that it left: each holds a lock on its spec."""
    specs = (home.local / layout.OPEN).glob(f"*.{layout.SPEC}.json")
    return sum(locks.is_held(str(spec)) for spec in specs)


def end_idle_host(home: Home) -> None:
    """End the host unless jobs run: they keep it, and the next `up` finds both."""
    host = running_host(home)
    if host is not None and running_jobs(home) == 0:
        host.end(signal.SIGTERM, 10)
