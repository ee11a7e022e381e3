"""A small HTTP server that answers as the API does, with what a test tells it to: how the command line asks, waits and
refuses needs no database."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status and a JSON body; a list of events where the reader asked for a stream, a `Log`, or what breaks."""
Answers = Callable[[str, str, Any], Answer]


@dataclass(frozen=True)
class Broken:
    """So much of a body, then the end of the connection; without a body not even a status."""

    body: Any = None


@dataclass(frozen=True)
class Log:
    """A piece of a log that has so many bytes by now."""

    piece: bytes
    size_bytes: int


class Asked:
    """What was asked so far: method, path, body."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, str, Any]] = []
        self.after: list[str | None] = []
        """The Last-Event-ID of each."""

    def of(self, method: str) -> list[str]:
        return [path for asked, path, _ in self.requests if asked == method]


@contextmanager
def answering(answers: Answers) -> Iterator[Asked]:
    """A server on a free port, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked.requests.append((self.command, self.path, body))
            asked.after.append(self.headers.get("Last-Event-ID"))
            status, answer = answers(self.command, self.path, body)
            breaks = isinstance(answer, Broken)
            self.close_connection = self.close_connection or breaks
            answer = answer.body if isinstance(answer, Broken) else answer
            if breaks and answer is None:
                return
            self.send_response(status)
            if isinstance(answer, Log):
                kind, data = "text/plain", answer.piece
                self.send_header("Tidegate-Size", str(answer.size_bytes))
            elif self.headers.get("Accept") == "text/event-stream" and status == 200:
                kind, data = "text/event-stream", "".join(_event(event) for event in answer).encode()
            else:
                kind, data = "application/json", b"" if answer is None else json.dumps(answer).encode()
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data) + breaks))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    asked = Asked(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _event(job: dict[str, Any] | str) -> str:
    if isinstance(job, str):  # as it is
        return job
    kind = job["state"].lower()
    return f"event: {kind}\nid: 1-{job['seq']}\ndata: {json.dumps({'type': kind, 'job': job})}\n\n"
