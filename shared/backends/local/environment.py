"""The environment of a job's command, built from nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

RESUME = "TIDEGATE_RESUME"
PORT, SECRET, HEARTBEAT = "TIDEGATE_PORT", "TIDEGATE_SECRET", "TIDEGATE_HEARTBEAT"
# Ours to set or to leave out: a job that was submitted with another job's environment is not that job.
_NOT_INHERITED = (RESUME, PORT, SECRET, HEARTBEAT)
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# sun_path holds 108 bytes, and multiprocessing puts sockets with names of about 40 below TMPDIR: unix(7).
_TMPDIR_LENGTH_MAX = 64


def build(
    given: Mapping[str, str], *, own: Mapping[str, str], attempt_directory: str, devices: Sequence[int]
) -> dict[str, str]:
    """What the job gave over defaults, and over both what must be true: HOME, the GPUs and `own` (TIDEGATE_*)."""
    environment = {
        "PATH": f"{os.path.dirname(sys.executable)}:{_SYSTEM_PATH}",
        "LANG": "C.UTF-8",
        "USER": "tidegate",
        "LOGNAME": "tidegate",
        "SHELL": "/bin/sh",
        "PYTHONUNBUFFERED": "1",  # what a program prints is in its log while it runs
    }
    home = f"{attempt_directory}/home"
    if len(os.fsencode(home)) <= _TMPDIR_LENGTH_MAX:
        environment["TMPDIR"] = home
    environment.update(given)
    for name in _NOT_INHERITED:
        environment.pop(name, None)
    environment["HOME"] = home
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in devices)
    environment.update(own)
    return environment
