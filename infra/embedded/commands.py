"""`tidegate up`, `down`, `restart`, `ps` and `logs`, for the command line to call: plain words out, exit codes back."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.embedded import replicas, rolling
from infra.embedded.home import Home, HomeRefusedError
from infra.embedded.logs import follow as follow_log
from infra.embedded.logs import last_lines
from infra.embedded.options import Options
from infra.embedded.probes import why_not_ready
from infra.embedded.processes import Identity, open_log
from infra.embedded.runner import end_idle_host, end_jobs, not_followed, running_jobs
from infra.embedded.serve import DONE, FAILED, REFUSED, end_leftovers, is_up, jobs_go_on, serve
from infra.embedded.stack import environment
from infra.embedded.state import State, is_running
from infra.embedded.supervisor import READY_SECONDS

__all__ = ["HomeRefusedError", "Options", "down", "logs", "ps", "restart", "up"]

_LOOK_SECONDS = 0.05
_DOWN_SECONDS = 90.0


def up(options: Options) -> int:
    """Start a stack. In front it stands until Ctrl-C; detached this returns once every service answers.

    0 it stands (or ended well, in front); 1 it did not get ready; 3 refused, with the reason on stderr.
    """
    home = Home.at(options.home)
    options = replace(options, home=home.root)
    if options.clusters is not None:
        clusters = options.clusters.absolute()
        options = replace(options, clusters=clusters)
        if (wrong := _wrong_clusters(clusters)) is not None:
            print(f"tidegate up: {wrong}", file=sys.stderr)
            return REFUSED
    with home.refusing():
        if is_running(home):
            return _already_running(home, options)
        before = State.read(home)
        if before is not None and before.clusters is not None and options.clusters is None:
            print(
                f"started without --clusters {before.clusters}, which it had before: what runs there is not looked "
                "after until it is started with it again",
                file=sys.stderr,
            )
        if options.detach:
            return _detached(home, options)
    return serve(options)


def down(home: Path, *, kill_jobs: bool = False) -> int:
    """Stop the stack of a home in order. Its jobs go on, unless told otherwise; the next `up` finds them."""
    place = Home.at(home)
    with place.refusing():
        stopped = _stop(place)
        ended = asyncio.run(end_jobs(place)) if kill_jobs else 0
        end_idle_host(place)
        jobs = running_jobs(place)
    said = [f"stopped the stack in {place.root}" if stopped else f"no stack is running in {place.root}"]
    if kill_jobs and (stopped or ended):
        said.append(f"ended {ended} running job{'' if ended == 1 else 's'}")
    if jobs:
        said.append(jobs_go_on(jobs))
    print("; ".join(said))
    return DONE


def restart(home: Path, names: Sequence[str]) -> int:
    """Restart processes one after the other, all services where none is named."""
    place = Home.at(home)
    with place.refusing():
        return rolling.restart(place, names)


def ps(home: Path) -> list[dict[str, Any]]:
    """The processes of a home's stack: name, pid, state, restarts, started_at; none where no stack was started."""
    place = Home.at(home)
    with place.refusing():
        state = State.read(place)
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
    place = Home.at(home)
    log = place.log(service)
    with place.refusing():
        known = sorted(path.stem for path in _entries(place.logs) if path.suffix == ".log")
        shown = last_lines(log, lines) if service in known else []
    if service not in known:
        there = f"there are {', '.join(known)}" if known else "no stack was ever started there"
        print(f"no log of {service!r} in {place.root}: {there}", file=sys.stderr)
        return REFUSED
    for line in shown:
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
    deadline = float("inf")
    while child.poll() is None and time.monotonic() < deadline:
        state = State.read(home)
        if state is not None and state.supervisor == identity:
            if state.ready:
                print(is_up(_url(home) or "?", home, state.remark))
                return DONE
            if state.servers_ready:  # until then the supervisor itself ends when something takes too long
                deadline = min(deadline, time.monotonic() + READY_SECONDS)
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


def _wrong_clusters(path: Path) -> str | None:
    """Why the services could not read this file."""
    from shared.backends.clusters import WrongClusters, read  # twice the memory of a supervisor without it

    try:
        read(path)
    except WrongClusters as error:
        return str(error)
    return None


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


def _already_running(home: Home, options: Options) -> int:
    """Where the stack that runs has all that was asked for, a detached `up` is content with it."""
    where = f" at {url}" if (url := _url(home)) else ""
    print(f"a stack is already running in {home.root}{where}; `tidegate down` stops it", file=sys.stderr)
    differing = not_followed(home, options)
    state = State.read(home)
    if state is not None and options.http_port not in (None, state.ports.get("http")):
        differing.append(f"--http-port {options.http_port} (it has {state.ports.get('http', 'not said yet')})")
    if state is not None and options.clusters is not None and str(options.clusters) != state.clusters:
        differing.append(f"--clusters {options.clusters} (it has {state.clusters or 'none'})")
    if state is not None and options.allow_tenants and not state.many_tenants:
        differing.append("--allow-tenants (it has one tenant)")
    differing += [
        f"--replicas {service}={wanted} (it has {running})"
        for service, wanted in options.replicas.items()
        if state is not None and wanted != (running := replicas.count(service, state.replicas))
    ]
    if differing:
        print(
            f"not applied: {', '.join(differing)}. To have it so: `tidegate down`, then this `tidegate up` again",
            file=sys.stderr,
        )
    return REFUSED if differing or not options.detach else DONE


def _stop(home: Home) -> bool:
    """Stop what runs but for jobs and their host; False where nothing did."""
    state = _state_of_running(home)
    stopped = state is not None
    if state is not None:
        state.supervisor.end(signal.SIGTERM, _DOWN_SECONDS)
    state = State.read(home) or state
    if state is not None:
        stopped |= any(entry.now().identity for entry in state.processes if not entry.outlives)
        end_leftovers(state)
    home.endpoint.unlink(missing_ok=True)
    return stopped


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _url(home: Home) -> str | None:
    try:
        return str(json.loads(home.endpoint.read_text())["url"])
    except (OSError, ValueError, KeyError):
        return None
