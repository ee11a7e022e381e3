"""Requests to a stack all the time, by a client that forgives nothing."""

import http.client
import threading
import urllib.parse

from tests.e2e.stacks import Stack, eventually


class Requests:
    """Asks `api` all the time while the block runs, each time on a fresh connection, and never a second time."""

    def __init__(self, stack: Stack) -> None:
        known = stack.endpoint
        self._address = urllib.parse.urlsplit(known["url"]).netloc
        self._headers = {"Authorization": f"Bearer {known['token']}"}
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(2)]
        self.answered = 0
        self.failed: list[str] = []

    def __enter__(self) -> "Requests":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def go_on(self) -> None:
        """Return after some more answers."""
        so_far = self.answered
        eventually(lambda: self.answered > so_far + 20 or self.failed, "more answers")

    def _ask(self) -> None:
        while not self._over.is_set():
            connection = http.client.HTTPConnection(self._address, timeout=60)
            try:
                connection.request("GET", "/v1/whoami", headers=self._headers)
                answer = connection.getresponse()
                answer.read()
                if answer.status != 200:
                    self.failed.append(f"answered {answer.status}")
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
            finally:
                connection.close()
            self.answered += 1
