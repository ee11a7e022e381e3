"""`python -m services.api`."""

import asyncio
import gc
import sys
from types import FrameType

import uvicorn
import uvloop

from services.api.app import create_app
from services.api.feed import Feed
from services.api.settings import ApiSettings
from shared.runtime.errors import SettingsError
from shared.runtime.service import Service

_FINISH_SECONDS = 10
_LOOK_SECONDS = 1.0


class Server(uvicorn.Server):
    """Ends the open streams once it is told to stop: uvicorn waits for its connections before the lifespan ends."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or SIGINT."""
        self._feed.close()
        super().handle_exit(sig, frame)


async def _serve(server: Server, service: Service) -> int:
    """Serve until a signal (0), or until the broker withdraws the login (1)."""
    serving = asyncio.create_task(server.serve())
    lost = False
    while not serving.done():
        await asyncio.wait({serving}, timeout=_LOOK_SECONDS)
        failed = service.broker.failed
        if failed is not None and failed.done() and not lost:
            service.log.error("broker is gone for good", reason=failed.result())
            lost = server.should_exit = True
    await serving
    return 1 if lost or not server.started else 0


def main() -> int:
    """Run the service as this process."""
    settings = ApiSettings.load()
    # Records are large trees without cycles: at the default thresholds the collector, which finds nothing, took a
    # quarter of the time under load.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    app, service, feed = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.http_host,
        port=settings.http_port,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_FINISH_SECONDS,
    )
    return uvloop.run(_serve(Server(config, feed), service))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SettingsError as error:
        sys.exit(f"api: {error}")
