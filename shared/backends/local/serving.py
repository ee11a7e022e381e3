"""The life of a supervisor process: one attempt after the other.

It asks for another only after an attempt that ended by itself and left nothing (`Supervisor.may_go_on`): a process that
somebody may still mean to kill for one attempt must not have taken another.
"""

from __future__ import annotations

import json
import os
import socket

from shared.backends.local import recording
from shared.backends.local.complaints import complain
from shared.backends.local.crew import TASK_BYTES_MAX, Task
from shared.backends.local.orders import Order
from shared.backends.local.supervisor import Supervisor, failed

# What Python may lose in a process without its garbage collector stays small.
ATTEMPTS_MAX = 100


def serve(root: str, channel: socket.socket, task: Task, spec_fd: int) -> None:
    """Supervise this attempt, then whatever the host hands over. `spec_fd` holds the lock on the attempt's spec."""
    for left in reversed(range(ATTEMPTS_MAX)):
        if not supervise(root, task) or left == 0:  # who asks takes what it is given
            return
        os.close(spec_fd)
        following = _ask(channel)
        if following is None:
            return
        task, spec_fd = following


def supervise(root: str, task: Task) -> bool:
    """One attempt, to the record of its end; whether this process may take another."""
    fields, uid, gid, devices = task
    supervisor: Supervisor | None = None
    try:
        supervisor = Supervisor(root, Order(fields), uid, gid, devices)
        supervisor.live()
    except Exception as error:
        complain(f"{fields.get('submission')}: the supervisor failed: {error!r}")
        if supervisor is None:
            recording.end_unbegun(root, str(fields.get("submission")), failed(error))
        else:
            supervisor.give_up(error)
        return False
    return supervisor.may_go_on


def _ask(channel: socket.socket) -> tuple[Task, int] | None:
    """Wait for the next attempt and its lock; None when the host has no more, or is gone."""
    try:
        channel.send(b"?")
        message, descriptors, _, _ = socket.recv_fds(channel, TASK_BYTES_MAX, 1)
    except OSError:
        return None
    if not message:
        return None
    os.set_inheritable(descriptors[0], False)  # recv_fds passes no MSG_CMSG_CLOEXEC on, and the job must not hold it
    fields, uid, gid, devices = json.loads(message)
    return (fields, uid, gid, devices), descriptors[0]
