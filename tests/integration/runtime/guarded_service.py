"""A gatekeeper whose writes are guarded: `python guarded_service.py FOLDER`, with the usual settings.

It handles three messages at a time, writes `begun` into the folder, and goes on once `go` is there; `done` lists what
it has handled. A replica inside of a test has the same `handle`.
"""

import asyncio
import sys
from pathlib import Path

from shared.runtime.messages import Delivery
from shared.runtime.outbox import Outgoing
from shared.runtime.service import Service
from shared.runtime.settings import ServiceSettings


async def handle(service: Service, deliveries: list[Delivery]) -> None:
    """Report each message once, whoever of the replicas gets it, however late: the row that it makes is the guard.

    The table `leases` stands for one of the service's own.
    """
    async with service.db.transaction() as tx:
        bodies = [delivery.body.decode() for delivery in deliveries]
        new = await tx.fetch(
            "INSERT INTO leases (name, owner, epoch, until) SELECT body, $2, 0, now() FROM unnest($1::text[]) AS body"
            " ON CONFLICT DO NOTHING RETURNING name",
            bodies,
            service.settings.replica,
        )
        await tx.enqueue([Outgoing("facts.v1.gatekeeper.held", row["name"], row["name"], b"") for row in new])


def main(folder: Path) -> None:
    """The replica that takes its time."""
    service = Service("gatekeeper", ServiceSettings.load())

    @service.consume("gatekeeper", batch=3)
    async def slow(deliveries: list[Delivery]) -> None:
        (folder / "begun").touch()
        while not (folder / "go").exists():  # noqa: ASYNC110 # another process makes it
            await asyncio.sleep(0.01)
        await handle(service, deliveries)
        with (folder / "done").open("a") as done:
            done.writelines(f"{delivery.body.decode()}\n" for delivery in deliveries)

    service.main()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
