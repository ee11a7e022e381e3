"""A gatekeeper whose handler waits until it is let go on: `python slow_service.py FOLDER`, with the usual settings.

It handles three messages at a time, writes `begun` with the bodies of the batch into the folder, and ends the batch
once `go` is there.
"""

import asyncio
import sys
from pathlib import Path

from shared.runtime.messages import Delivery
from shared.runtime.service import Service
from shared.runtime.settings import ServiceSettings

folder = Path(sys.argv[1])
service = Service("gatekeeper", ServiceSettings.load())


@service.consume("gatekeeper", batch=3)
async def handle(deliveries: list[Delivery]) -> None:
    """Wait for `go`."""
    (folder / "begun").write_text(" ".join(delivery.body.decode() for delivery in deliveries))
    while not (folder / "go").exists():  # noqa: ASYNC110 # another process makes it
        await asyncio.sleep(0.01)


service.main()
