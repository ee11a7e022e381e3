"""Forks one supervisor per order, without a host and its checks, all let go at the same moment.

Run as a program: reads {root, orders} as JSON from standard input, and ends when all supervisors have. It shows what
the claim alone is worth, and what a supervisor does when the world has changed since the host looked.
"""

import json
import os
import sys

from shared.backends.local import layout, uids, view
from shared.backends.local.orders import Order
from shared.backends.local.supervisor import Supervisor, become_supervisor


def _fork(root: str, order: Order, gate: tuple[int, int]) -> int:
    uid = uids.uid_for(root, order.tenant)
    gid = uid if os.geteuid() == 0 else os.getegid()
    layout.make_attempt_directory(root, order.tenant, order.job, order.attempt, gid)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(gate[1])
            os.read(gate[0], 1)  # until the other end is closed
            become_supervisor(gate[0])
            Supervisor(root, order, uid, gid, []).live()
        finally:
            os._exit(0)
    return pid


def main() -> None:
    """Let them race."""
    given = json.load(sys.stdin)
    view.isolate(given["root"], [])
    gate = os.pipe()
    pids = [_fork(given["root"], Order(fields), gate) for fields in given["orders"]]
    os.close(gate[1])
    for pid in pids:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
