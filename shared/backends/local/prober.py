"""One process per workstation that looks every few seconds whether it is in use, and records that.

It is a fork of the supervisor and dies with it. Whatever goes wrong in it, with a driver's tool that hangs too, is no
matter of the supervisor: then nothing is known of the workstation's activity.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from typing import NoReturn

from shared.backends.local import layout, linux
from shared.backends.local.complaints import complain
from shared.backends.local.files import read_record, write_record
from shared.backends.local.moments import now_ms, utc
from shared.backends.local.probes import connections, cpu, gpu, heartbeat
from shared.backends.local.probes.probe import Probe, Watched

PROBES = (cpu.make, gpu.make, connections.make, heartbeat.make)
"""Each makes its probe of a workstation, or None where there is nothing to watch."""
_LOOK_SECONDS = 5.0
_PROCESS_NAME = "tidegate-probe"


class Looking:
    """What the probes of one workstation have seen since it started."""

    def __init__(self, submission: str, probes: Sequence[Probe], since_ms: int) -> None:
        self._submission, self._probes, self._since_ms = submission, probes, since_ms
        self._last: dict[str, int | None] = {probe.name: None for probe in probes}

    def look(self, at_ms: int) -> dict[str, object]:
        """Let each probe look; the record of it. One that fails is named in `broken`, and hinders no other."""
        broken: dict[str, str] = {}
        for probe in self._probes:
            try:
                seen = probe.look(at_ms)
            except Exception as error:  # whatever a plug-in raises, it knows nothing now
                broken[probe.name] = repr(error)
                continue
            if seen is not None:
                self._last[probe.name] = max(min(seen, at_ms), self._last[probe.name] or self._since_ms)
        return {
            "submission": self._submission,
            "since": utc(self._since_ms),
            "at": utc(at_ms),
            "probes": {
                name: None if last is None else utc(last) for name, last in self._last.items() if name not in broken
            },
            "broken": broken,
        }


def start(root: str, submission: str, port: int, heartbeat_path: str, started_ms: int, devices: list[int]) -> int:
    """Fork it from the supervisor; its pid."""
    supervisor = os.getpid()
    pid = os.fork()
    if pid != 0:
        return pid
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # what is sent to the job is not for it
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() == supervisor:
            linux.name_process(_PROCESS_NAME)
            linux.close_descriptors()
            watched = Watched(supervisor, os.getpid(), _user_of(root, submission), port, heartbeat_path, tuple(devices))
            probes = [probe for make in PROBES if (probe := make(watched)) is not None]
            _record_for_ever(
                layout.record_path(root, submission, layout.ACTIVITY), Looking(submission, probes, started_ms)
            )
    except BaseException as error:
        complain(f"{submission}: nobody watches whether it is idle any more: {error!r}")
    finally:
        os._exit(1)


def _user_of(root: str, submission: str) -> int:
    intent = read_record(layout.record_path(root, submission, layout.SPEC))
    uid = None if intent is None else intent.get("uid")
    if type(uid) is not int:
        raise ValueError("there is no record of the user that it runs as")
    return uid


def _record_for_ever(path: str, looking: Looking) -> NoReturn:
    while True:
        record = looking.look(now_ms())
        try:
            write_record(path, record)
        except OSError as error:
            complain(f"{path} is not written: {error}")
        time.sleep(_LOOK_SECONDS)
