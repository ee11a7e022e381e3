"""A small HTTP server that answers as the API does, with what a test tells it to: how the command line asks, waits and
refuses needs no database."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
"""A status and a JSON body; a list of events where the reader asked for a stream."""
Answers = Callable[[str, str, Any], Answer]


class Asked:
    """What was asked so far: method, path, body."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, str, Any]] = []

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
            status, answer = answers(self.command, self.path, body)
            if self.headers.get("Accept") == "text/event-stream" and status == 200:
                kind, text = "text/event-stream", "".join(_event(event) for event in answer)
            else:
                kind, text = "application/json", "" if answer is None else json.dumps(answer)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

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


def _event(job: dict[str, Any]) -> str:
    kind = job["state"].lower()
    return f"event: {kind}\nid: 1-{job['seq']}\ndata: {json.dumps({'type': kind, 'job': job})}\n\n"
