"""`tidegate up`, `down`, `ps` and `logs`, for the command line to call: plain words out, exit codes back."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.embedded.home import Home
from infra.embedded.logs import follow as follow_log
from infra.embedded.logs import last_lines
from infra.embedded.options import Options
from infra.embedded.probes import why_not_ready
from infra.embedded.processes import Identity, open_log
from infra.embedded.runner import end_idle_host, end_jobs, running_jobs
from infra.embedded.serve import DONE, FAILED, REFUSED, end_leftovers, jobs_go_on, serve
from infra.embedded.stack import environment
from infra.embedded.state import State, is_running
from infra.embedded.supervisor import READY_SECONDS

__all__ = ["Options", "down", "logs", "ps", "up"]

_LOOK_SECONDS = 0.05
_DOWN_SECONDS = 90.0


def up(options: Options) -> int:
    """Start a stack. In front it stands until Ctrl-C; detached this returns once every service answers.

    0 it stands (or ended well, in front); 1 it did not get ready; 3 refused, with the reason on stderr.
    """
    options = replace(options, home=options.home.expanduser().absolute())
    home = Home(options.home)
    if is_running(home):
        print(f"a stack is already running in {home.root}{_where(home)}; `tidegate down` stops it", file=sys.stderr)
        return DONE if options.detach else REFUSED
    return _detached(home, options) if options.detach else serve(options)


def down(home: Path, *, kill_jobs: bool = False) -> int:
    """Stop the stack of a home in order. Its jobs go on, unless told otherwise; the next `up` finds them."""
    place = Home(home.expanduser().absolute())
    state = _state_of_running(place)
    if state is not None:
        state.supervisor.end(signal.SIGTERM, _DOWN_SECONDS)
    else:
        state = State.read(place)
        if running_jobs(place) == 0 and (state is None or not any(entry.now().identity for entry in state.processes)):
            print(f"no stack is running in {place.root}")
            return DONE
    state = State.read(place) or state
    if state is not None:
        end_leftovers(state)
    place.endpoint.unlink(missing_ok=True)
    if kill_jobs:
        asyncio.run(end_jobs(place))
    end_idle_host(place)
    jobs = running_jobs(place)
    print(f"stopped the stack in {place.root}" + (f"; {jobs_go_on(jobs)}" if jobs else ""))
    return DONE


def ps(home: Path) -> list[dict[str, Any]]:
    """The processes of a home's stack: name, pid, state, restarts, started_at; none where no stack was started."""
    state = State.read(Home(home.expanduser().absolute()))
    entries = [entry.now() for entry in state.processes] if state else []
    return [
        {
            "name": entry.name,
            "pid": entry.identity.pid if entry.identity else None,
            "state": entry.state,
            "restarts": entry.restarts,
            "started_at": entry.started_at,
        }
        for entry in entries
    ]


def logs(home: Path, service: str, *, follow: bool = False, lines: int = 100) -> int:
    """Print the end of one process's log, and go on with it until Ctrl-C where asked to."""
    place = Home(home.expanduser().absolute())
    log = place.log(service)
    known = sorted(path.stem for path in place.logs.glob("*.log")) if place.logs.is_dir() else []
    if service not in known:
        there = f"there are {', '.join(known)}" if known else "no stack was ever started there"
        print(f"no log of {service!r} in {place.root}: {there}", file=sys.stderr)
        return REFUSED
    for line in last_lines(log, lines):
        print(line)
    if follow:
        try:
            for line in follow_log(log):
                print(line, flush=True)
        except KeyboardInterrupt:
            pass
    return DONE


def _detached(home: Home, options: Options) -> int:
    home.make()
    log = home.log("supervisor")
    with open_log(log) as output:
        child = subprocess.Popen(
            (sys.executable, "-m", "infra.embedded", json.dumps(options.to_json())),
            cwd=home.root,
            env=os.environ | environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    identity = Identity.of_child(child)
    deadline = time.monotonic() + READY_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        state = State.read(home)
        if state is not None and state.supervisor == identity and state.ready:
            print(f"tidegate is up{_where(home)} (home {home.root})")
            return DONE
        time.sleep(_LOOK_SECONDS)
    if child.returncode is not None:
        state = State.read(home)
        known = state.problem if state is not None and state.supervisor == identity else None
        end = "\n".join(last_lines(log, 20))
        print(
            f"tidegate up: {known or f'the supervisor ended; its log, {log}, ends with:{chr(10)}{end}'}",
            file=sys.stderr,
        )
        return child.returncode or FAILED
    print(f"tidegate up: not ready after {READY_SECONDS:g} s:", file=sys.stderr)
    for line in _not_ready(home):
        print(f"  {line}", file=sys.stderr)
    print(f"It goes on trying; `tidegate ps` shows it, `tidegate down` stops it. Home: {home.root}", file=sys.stderr)
    return FAILED


def _not_ready(home: Home) -> list[str]:
    state = State.read(home)
    lines = []
    for entry in state.processes if state else ():
        why_not = why_not_ready(entry.ready) if entry.ready else None
        if why_not is not None:
            lines.append(f"{entry.name} is {entry.state} ({why_not}); its log is {entry.log}")
    return lines or [f"the servers are still being prepared; the log is {home.log('supervisor')}"]


def _state_of_running(home: Home) -> State | None:
    """The state of the stack that runs; None where none does. A supervisor that is only just starting is waited for."""
    deadline = time.monotonic() + 10
    while is_running(home):
        state = State.read(home)
        if (state is not None and state.supervisor.alive()) or time.monotonic() > deadline:
            return state
        time.sleep(_LOOK_SECONDS)
    return None


def _where(home: Home) -> str:
    try:
        return f" at {json.loads(home.endpoint.read_text())['url']}"
    except (OSError, ValueError, KeyError):
        return ""
