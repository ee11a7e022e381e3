"""Requests to a stack all the time, by a client that forgives nothing."""

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any, Self

from tests.e2e.stacks import Stack, eventually
from tests.patience import PATIENCE_SECONDS

_ASK_SECONDS = 0.02
_SUBMIT_SECONDS = 0.2


class Requests:
    """Asks `api` and submits jobs all the time while the block runs: on fresh connections, nothing a second time."""

    def __init__(self, stack: Stack) -> None:
        known = stack.endpoint
        self._address = urllib.parse.urlsplit(known["url"]).netloc
        self._headers = {"Authorization": f"Bearer {known['token']}", "Content-Type": "application/json"}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=[what]) for what in (self._ask, self._submit)]
        self.answered = 0
        self.jobs: list[str] = []
        self.failed: list[str] = []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def more(self) -> None:
        """Return after some more answers."""
        answered, jobs = self.answered, len(self.jobs)
        eventually(lambda: (self.answered > answered + 10 and len(self.jobs) > jobs) or self.failed, "more answers")

    def _go_on(self, what: Callable[[], None]) -> None:
        while not self._over.is_set():
            try:
                what()
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(f"{what.__name__}: {error!r}")

    def _ask(self) -> None:
        self._request("GET", "/v1/whoami", None)
        self.answered += 1
        self._over.wait(_ASK_SECONDS)

    def _submit(self) -> None:
        self.jobs.append(self._request("POST", "/v1/jobs", {"spec": {"command": ["true"]}})["id"])
        self._over.wait(_SUBMIT_SECONDS)

    def _request(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_SECONDS)
        try:
            connection.request(method, path, body=json.dumps(body) if body else None, headers=self._headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status not in (200, 201):
            raise http.client.HTTPException(f"{answer.status} {text!r}")
        return dict(json.loads(text))
