"""`/healthz`, `/readyz` and `/metrics` from a thread of its own, so that a stuck event loop is seen from outside."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import TimeoutError as FutureTimeoutError
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Final

import orjson
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from shared.runtime.errors import SettingsError

HEARTBEAT_LIMIT_SECONDS: Final = 10.0
_HEARTBEAT_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 2.0

Missing = Callable[[], Awaitable[list[str]]]


class Health:
    """Answers on 127.0.0.1 from `start` to `stop`."""

    def __init__(self, port: int, missing: Missing) -> None:
        self._port = port
        self._missing = missing
        self._beat = time.monotonic()
        self._server: ThreadingHTTPServer | None = None
        self._heart: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def port(self) -> int:
        """The port it answers on."""
        return self._server.server_address[1] if self._server else self._port

    def start(self) -> None:
        """Begin to answer; the running event loop is the one watched."""
        self._loop = asyncio.get_running_loop()
        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        except OSError as error:
            raise SettingsError(
                f"TIDEGATE_HEALTH_PORT: {self._port} on 127.0.0.1 cannot be had ({error.strerror}); "
                "choose another one, or 0 for any that is free"
            ) from error
        self._server.daemon_threads = True
        self._heart = asyncio.create_task(self._beats())
        Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def stop(self) -> None:
        """Stop answering, half a second from now at most: nobody needs to wait for it."""
        if self._heart is not None:
            self._heart.cancel()
        server, self._server = self._server, None
        if server is not None:
            Thread(target=_close, args=(server,), name="health-stop", daemon=True).start()

    def alive(self) -> tuple[bool, str]:
        """Whether the event loop ran within the last 10 s."""
        silent = time.monotonic() - self._beat
        if silent > HEARTBEAT_LIMIT_SECONDS:
            return False, f"the event loop has not run for {silent:.0f} s"
        return True, "alive"

    def missing(self) -> list[str]:
        """What stands between this service and its work; asked on the event loop."""
        assert self._loop is not None, "start() comes first"
        answer = asyncio.run_coroutine_threadsafe(self._ask(), self._loop)
        try:
            return answer.result(_ANSWER_SECONDS)
        except (FutureTimeoutError, TimeoutError):
            answer.cancel()
            return [f"the event loop gave no answer within {_ANSWER_SECONDS:.0f} s"]

    async def _ask(self) -> list[str]:
        return await self._missing()

    async def _beats(self) -> None:
        while True:
            self._beat = time.monotonic()
            await asyncio.sleep(_HEARTBEAT_SECONDS)


def _close(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


def _handler(health: Health) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answer one probe."""
            match self.path.partition("?")[0]:
                case "/healthz":
                    well, text = health.alive()
                    self._answer(200 if well else 503, orjson.dumps({"alive": well, "detail": text}))
                case "/readyz":
                    missing = health.missing()
                    self._answer(503 if missing else 200, orjson.dumps({"ready": not missing, "missing": missing}))
                case "/metrics":
                    self._answer(200, generate_latest(REGISTRY), CONTENT_TYPE_PLAIN_0_0_4)
                case path:
                    text = f"{path}: nothing here; there are /healthz, /readyz and /metrics"
                    self._answer(404, orjson.dumps({"detail": text}))

        def _answer(self, status: int, body: bytes, content_type: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """A probe every second is no news."""

    return Handler
