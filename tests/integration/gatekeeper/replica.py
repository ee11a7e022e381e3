"""One more gatekeeper as a process of its own: handles each event that it reads as a line, and answers a line."""

import asyncio
import base64
import sys
from datetime import timedelta

from services.gatekeeper.admission import Policy
from services.gatekeeper.handlers import Gatekeeper
from services.gatekeeper.room import Limits
from shared.runtime.clock import FixedClock
from shared.runtime.database import Database
from shared.runtime.messages import Delivery
from tests.integration.gatekeeper.world import NOW


async def main(url: str) -> None:
    database = Database(url, schema="gatekeeper", max_connections=2)
    await database.connect()
    gatekeeper = Gatekeeper(
        database, FixedClock(NOW), Policy(Limits(), timedelta(seconds=30), timedelta(minutes=5), "gatekeeper/replica")
    )
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        bodies = [base64.b64decode(word) for word in line.split()]
        await gatekeeper.on_events([Delivery("jobs.v1.acme.queued", body, {}, 1, 1) for body in bodies])
        print("done", flush=True)
    await database.close()


asyncio.run(main(sys.argv[1]))
