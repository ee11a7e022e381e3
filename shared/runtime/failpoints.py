"""Named places at which a test harness kills or stops a process. Off unless TIDEGATE_FAILPOINTS names a folder.

A harness arms a point by putting a file `<service>.<point>` with an order into `<folder>/armed/`: `kill` or `stop`, and
after a blank the how-manieth passing of one process is meant (`kill 3`; supervisors obey at the first). Who obeys
moves the file to `<folder>/obeyed/<service>.<point>.<pid>` and gets SIGKILL or SIGSTOP there and then. A rename has one
winner: one order ends one process, however many replicas pass. The folder has to be there when a process starts.

Besides the services two others pass: `runner`, the host of local jobs, and `supervisor`, one process per job. Where a
point `costs_the_run`, a kill ends a run that nobody begins again: its job is `lost`, which is then the right end.

`python -m shared.runtime.failpoints` lists them.
"""

import os
import signal
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from shared.contracts.subjects import SERVICES

FOLDER: Final = "TIDEGATE_FAILPOINTS"
RUNNER: Final = "runner"
SUPERVISOR: Final = "supervisor"
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Point(NamedTuple):
    """Who passes there, and what is done at that place."""

    services: tuple[str, ...]
    what: str
    costs_the_run: bool = False


POINTS: Final[Mapping[str, Point]] = MappingProxyType(
    {
        "commit.before": Point(SERVICES, "a transaction has done its statements and is not committed"),
        "commit.after": Point(SERVICES, "a transaction is committed and nobody was told"),
        "publish.before": Point(SERVICES, "rows of the outbox were read and are not sent"),
        "publish.after": Point(SERVICES, "the broker has them and they are not marked as sent"),
        "ack.before": Point(SERVICES, "a batch was handled and is not acknowledged"),
        "ack.after": Point(SERVICES, "a batch was acknowledged"),
        "lease.after": Point(("launcher",), "rows were leased in one statement and nothing was done about them"),
        "submit.before": Point(("launcher",), "a launch is leased and the backend was not asked"),
        "submit.after": Point(("launcher",), "the backend has answered and the answer is not recorded"),
        "revoke.before": Point(("launcher",), "an attempt is to end and `revoked` is not there"),
        "revoke.after": Point(("launcher",), "`revoked` is there and the claims were not read"),
        "kill.before": Point(("launcher",), "a command is to be stopped or killed and was not asked"),
        "kill.after": Point(("launcher",), "it was asked, and nothing is recorded"),
        "release.before": Point(("launcher",), "an attempt has ended for good and its records are to be released"),
        "release.after": Point(("launcher",), "its records are released and the row does not say so"),
        "observe.after": Point(("watcher",), "the backend was looked at and nothing was told"),
        "copy.before": Point(("stager",), "files are to be copied, in or back, and none is"),
        "copy.after": Point(("stager",), "files were copied, in or back, and nothing is published"),
        "rename.before": Point(("stager",), "a directory or a manifest is whole under its temporary name"),
        "rename.after": Point(("stager",), "it has its final name and nothing is published"),
        "spawn.before": Point((RUNNER,), "the intent is on disk and no supervisor was forked"),
        "spawn.after": Point((RUNNER,), "a supervisor was forked and the launcher has no answer"),
        "claim.before": Point((SUPERVISOR,), "it lives and has not taken the claim", costs_the_run=True),
        "claim.between": Point((SUPERVISOR,), "the attempt is claimed and no record says so yet", costs_the_run=True),
        "claim.after": Point((SUPERVISOR,), "the claim is taken and `revoked` was not looked for", costs_the_run=True),
        "start.before": Point((SUPERVISOR,), "nothing forbids the start and the command is not up", costs_the_run=True),
        "start.after": Point((SUPERVISOR,), "the command is up and no record says so", costs_the_run=True),
        "stop.before": Point((SUPERVISOR,), "a stop was seen and is not recorded", costs_the_run=True),
        "stop.after": Point((SUPERVISOR,), "it is recorded and no signal was sent", costs_the_run=True),
        "exit.before": Point(
            (SUPERVISOR,), "nothing of the job is left and its end is not recorded", costs_the_run=True
        ),
        "exit.after": Point((SUPERVISOR,), "its end is recorded"),
    }
)
"""Every point. A test holds the code to it: each is passed somewhere, and nothing else is."""


class _Armed:
    """The folder and the name of this process's service; none in production."""

    folder: str | None = None
    descriptor: int | None = None
    service = ""
    passed: Final[dict[str, int]] = {}


def use(service: str, environ: Mapping[str, str] = os.environ) -> None:
    """Look for orders to `service` from now on, where the environment names a folder."""
    if _Armed.descriptor is not None:
        os.close(_Armed.descriptor)
    named = environ.get(FOLDER)
    # By descriptor: the runner covers with mounts of its own what its jobs are not to see.
    _Armed.descriptor = os.open(named, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) if named else None
    _Armed.folder = None if _Armed.descriptor is None else f"/proc/self/fd/{_Armed.descriptor}"
    become(service)


def become(service: str) -> None:
    """Look for orders to `service` from now on: for a fork that is something else than its parent."""
    _Armed.service = service
    _Armed.passed.clear()


def descriptors() -> tuple[int, ...]:
    """What a process must keep open to go on looking."""
    return () if _Armed.descriptor is None else (_Armed.descriptor,)


def reach(point: str) -> None:
    """Pass `point`, unless an order ends or freezes this process here."""
    if _Armed.folder is not None:
        _obey(_Armed.folder, f"{_Armed.service}.{point}")


def _obey(folder: str, name: str) -> None:
    try:
        with open(f"{folder}/armed/{name}") as file:
            word, _, nth = file.read().partition(" ")
    except FileNotFoundError:
        return
    passed = _Armed.passed[name] = _Armed.passed.get(name, 0) + 1
    if passed < int(nth or 1) and _Armed.service != SUPERVISOR:
        return
    try:
        os.rename(f"{folder}/armed/{name}", f"{folder}/obeyed/{name}.{os.getpid()}")
    except FileNotFoundError:
        return  # another process was first
    del _Armed.passed[name]
    os.kill(os.getpid(), _SIGNALS[word.strip()])


def lines() -> list[str]:
    """One line per point: its name, who passes it, what it means."""
    width = max(map(len, POINTS))
    everyone = "every service"
    who = {
        name: everyone if point.services == SERVICES else ", ".join(point.services) for name, point in POINTS.items()
    }
    column = max(map(len, who.values()))
    return [f"{name:<{width}}  {who[name]:<{column}}  {point.what}" for name, point in POINTS.items()]


if __name__ == "__main__":
    sys.stdout.write("\n".join(lines()) + "\n")
