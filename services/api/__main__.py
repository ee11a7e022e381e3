"""`python -m services.api`."""

import asyncio
import signal
import socket
import sys
from types import FrameType

import uvicorn
import uvloop

from services.api.app import create_app
from services.api.feed import Feed
from services.api.settings import ApiSettings
from shared.runtime.errors import SettingsError

_FINISH_SECONDS = 10
_FIRST_REQUEST_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_BACKLOG = 2048
_WEBSOCKET_MESSAGE_BYTES = 4 * 1024**2
_KEEP_ALIVE_SECONDS = 75  # longer than clients keep an idle connection: else a request meets its closing


class Server(uvicorn.Server):
    """Ends well once it is told to: open streams end, for uvicorn waits for its connections before the lifespan ends,
    and whoever got a connection gets an answer."""

    def __init__(self, config: uvicorn.Config, feed: Feed) -> None:
        super().__init__(config)
        self._feed = feed

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """SIGTERM or SIGINT."""
        self._feed.close()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """uvicorn closes at once what it took and has not read from, though the request is on its way: wait for it."""
        for server in self.servers:
            server.close()
        clock = asyncio.get_running_loop().time
        deadline = clock() + _FIRST_REQUEST_SECONDS
        await asyncio.sleep(_LOOK_SECONDS)  # what was taken in this very turn of the loop is no connection yet
        while clock() < deadline and any(map(has_not_asked, self.server_state.connections)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(_LOOK_SECONDS)
        await super().shutdown(sockets)


def has_not_asked(connection: object) -> bool:
    """Whether no request came on it yet."""
    return getattr(connection, "cycle", connection) is None


def listen(settings: ApiSettings) -> socket.socket:
    """The bound socket, before anything says ready: whoever else has the port must never be taken for this api."""
    if settings.http_fd is not None:
        return handed_down(settings.http_fd)
    family = socket.AF_INET6 if ":" in settings.http_host else socket.AF_INET
    try:
        return socket.create_server((settings.http_host, settings.http_port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise SettingsError(
            f"TIDEGATE_HTTP_HOST and TIDEGATE_HTTP_PORT: {settings.http_host}:{settings.http_port} cannot be had "
            f"({error.strerror}); choose an address of this machine and a port that is free"
        ) from error


def handed_down(number: int) -> socket.socket:
    """The socket that the process was started with, listening from now on, as the one that it would make."""
    try:
        door = socket.socket(fileno=number)
        door.listen(_BACKLOG)
        return door
    except OSError as error:
        raise SettingsError(
            f"TIDEGATE_HTTP_FD: descriptor {number} is no socket that this process can listen on ({error.strerror}); "
            "hand down a bound one, or set TIDEGATE_HTTP_HOST and TIDEGATE_HTTP_PORT instead"
        ) from error


async def _serve(server: Server, listening: socket.socket) -> int:
    """Serve until a signal; the service raises SIGTERM itself where the broker withdraws its login."""
    await server.serve([listening])
    return 0 if server.started else 1


def main() -> int:
    """Run the service as this process."""
    settings = ApiSettings.load()
    listening = listen(settings)
    app, service, feed = create_app(settings)
    config = uvicorn.Config(
        app,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_FINISH_SECONDS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        ws_max_size=_WEBSOCKET_MESSAGE_BYTES,
        ws_max_queue=1,
    )
    # At its end uvicorn puts these handlers back and raises the signal that ended it again: exit by code, not by it.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(service.exit_code))
    return uvloop.run(_serve(Server(config, feed), listening))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SettingsError as error:
        sys.exit(f"api: {error}")
