"""Forks supervisors without a host and its checks, round after round, all of a round let go at the same moment.

Run as a program: reads {root, rounds} as JSON from standard input. A round has orders, and may have a `revoke_after` in
microseconds: then the attempt is revoked that long after letting go (or before, where negative), and whether that saw a
claim is printed. Where it is "before", they are let go once the attempt is revoked. It shows what the claim alone is
worth, and what a supervisor does when the world has changed since the host looked.
"""

import asyncio
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from shared.backends.local import layout, uids, view
from shared.backends.local.client import LocalClient
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


def _revoke(root: str, order: Order) -> bool:
    async def revoke_and_read() -> bool:
        client = LocalClient(root)
        await client.revoke(order.attempt_directory(root))
        return bool(await client.claims(order.attempt_directory(root)))

    return asyncio.run(revoke_and_read())


def _round(root: str, orders: list[Order], revoke_after: int | Literal["before"] | None) -> bool | None:
    gate = os.pipe()
    pids = [_fork(root, order, gate) for order in orders]
    with ThreadPoolExecutor(1) as revoker:
        claimed = None
        if revoke_after == "before":
            claimed = revoker.submit(_revoke, root, orders[0])
            claimed.result()
            revoke_after = None
        if revoke_after is not None and revoke_after < 0:
            claimed = revoker.submit(_revoke, root, orders[0])
            time.sleep(-revoke_after / 1e6)
        os.close(gate[1])
        if revoke_after is not None and revoke_after >= 0:
            time.sleep(revoke_after / 1e6)
            claimed = revoker.submit(_revoke, root, orders[0])
        for pid in pids:
            os.waitpid(pid, 0)
        os.close(gate[0])
        return None if claimed is None else claimed.result()


def main() -> None:
    """Let them race; prints one answer a round."""
    given = json.load(sys.stdin)
    view.isolate(given["root"], [])
    answers = [
        _round(given["root"], [Order(fields) for fields in one["orders"]], one["revoke_after"])
        for one in given["rounds"]
    ]
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
