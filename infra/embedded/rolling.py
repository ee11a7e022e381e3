"""`tidegate restart`: processes of a running stack, one after the other, so that work and requests go on meanwhile.

It asks a process to end and the supervisor does what it always does: it starts the process again.
"""

import signal
import sys
import time
from collections.abc import Sequence

from infra.embedded.home import Home
from infra.embedded.keeper import Backoff
from infra.embedded.probes import why_not_ready
from infra.embedded.runner import RUNNER
from infra.embedded.serve import DONE, FAILED, REFUSED
from infra.embedded.state import AlreadyRunningError, Entry, State, hold, is_running
from infra.embedded.supervisor import READY_SECONDS
from shared.contracts.subjects import SERVICES

_LOOK_SECONDS = 0.05
_RESTART_SECONDS = READY_SECONDS + Backoff.longest_seconds
_ROLLING = "restart"


def restart(home: Home, names: Sequence[str]) -> int:
    """Restart the named processes, all services where none is named; a service's name stands for all its replicas.

    The next one is asked to end only once the one before is ready again, and none while another replica of its service
    is not. 0 all are ready again; 1 one did not get ready, and those after it were left alone; 3 refused.
    """
    state = State.read(home) if is_running(home) else None
    if state is None or not state.servers_ready:
        return _refused(f"no stack is running in {home.root}: `tidegate up --detach` starts one")
    chosen, unknown = _chosen(state, names)
    if unknown:
        there = ", ".join(entry.name for entry in state.processes if _may_restart(entry.name))
        return _refused(f"{', '.join(map(repr, unknown))} cannot be restarted: name one of {there}")
    try:
        with hold(home, _ROLLING):
            return DONE if all(_one(home, name) for name in chosen) else FAILED
    except AlreadyRunningError:
        return _refused(f"another `tidegate restart` is at work in {home.root}: wait for its end")


def service_of(name: str) -> str:
    """The service that a replica belongs to; other processes are their own."""
    return next((service for service in SERVICES if name == service or name.startswith(f"{service}-")), name)


def _chosen(state: State, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The processes to restart, in the order of their start, and what of the names is none."""
    there = [entry.name for entry in state.processes if _may_restart(entry.name)]
    asked = set(names or SERVICES)
    chosen = [name for name in there if name in asked or service_of(name) in asked]
    return chosen, [name for name in names if name not in there]


def _may_restart(name: str) -> bool:
    return name != RUNNER  # jobs are its children


def _one(home: Home, name: str) -> bool:
    """End one process and wait until its successor is ready; what keeps that from being right is said."""
    siblings = [entry for entry in _entries(home) if entry.name != name and service_of(entry.name) == service_of(name)]
    for sibling in siblings:
        if not _is_running_within(home, sibling.name, 0, _RESTART_SECONDS):
            return _told(home, sibling.name, f"is not ready, so {name} was left alone")
    before = _entry(home, name)
    if before is None or before.identity is None:
        return _told(home, name, "does not run")
    begun = time.monotonic()
    before.identity.end(signal.Signals(before.stop_signal), before.stop_seconds)
    if not _is_running_within(home, name, before.restarts + 1, _RESTART_SECONDS):
        return _told(home, name, f"was ended and is not ready after {_RESTART_SECONDS:g} s")
    print(f"{name} restarted in {time.monotonic() - begun:.1f} s", flush=True)
    return True


def _is_running_within(home: Home, name: str, restarts: int, seconds: float) -> bool:
    """Wait until it answers, started at least so many times again; not beyond the end of the stack."""
    deadline = time.monotonic() + seconds
    while True:
        entry = _entry(home, name)
        if entry is not None and entry.restarts >= restarts and _is_ready(entry):
            return True
        if time.monotonic() > deadline or not is_running(home):
            return False
        time.sleep(_LOOK_SECONDS)


def _is_ready(entry: Entry) -> bool:
    """Whether it answers at this moment: what is shown as running may hang."""
    return entry.state == "running" and (entry.ready is None or why_not_ready(entry.ready) is None)


def _entries(home: Home) -> list[Entry]:
    state = State.read(home)
    return [entry.now() for entry in state.processes] if state else []


def _entry(home: Home, name: str) -> Entry | None:
    return next((entry for entry in _entries(home) if entry.name == name), None)


def _told(home: Home, name: str, what: str) -> bool:
    gone = "" if is_running(home) else ", and the stack has ended"
    print(f"tidegate restart: {name} {what}{gone}; `tidegate logs {name}` says more", file=sys.stderr)
    return False


def _refused(sentence: str) -> int:
    print(f"tidegate restart: {sentence}", file=sys.stderr)
    return REFUSED
