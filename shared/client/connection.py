"""Requests to one server: errors as sentences, and patience with a server that is started again."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx

from shared.client.endpoint import Endpoint
from shared.client.errors import NoServer, Refused, Unavailable
from shared.client.outage import Outage


class Connection:
    """A connection to one server with one token. Not shared between threads.

    Where a request is patient, a server that has answered is waited for while it does not; one that never has (or is
    said to have: `answered`) is not: it may not be there at all."""

    def __init__(
        self, endpoint: Endpoint, *, admin: bool = False, timeout_seconds: float = 30, answered: bool = False
    ) -> None:
        self.endpoint = endpoint
        self._answered = answered
        token = endpoint.admin_token if admin and endpoint.admin_token else endpoint.token
        self._http = httpx.Client(
            base_url=endpoint.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_seconds, connect=5),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._http.close()

    def call(self, method: str, path: str, *, patient: bool = False, **request: Any) -> Any:
        """One request and its JSON answer; a refusal is raised as the server's sentence. `patient` is for what may be
        asked twice."""
        outage = Outage()
        while True:
            try:
                response = self._send(method, path, **request)
                _raise_for(response)
                return response.json() if response.content else None
            except (NoServer, Unavailable) as error:
                if not patient:
                    raise
                self._ride_out(outage, error)

    def _ride_out(self, outage: Outage, error: NoServer | Unavailable) -> None:
        if not self._answered:
            raise error
        outage.ride_out(error)

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise self._unreachable(error) from None
        self._answered = True
        return response

    @contextmanager
    def _stream(
        self, method: str, path: str, *, read_seconds: float | None, **request: Any
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(30, connect=5, read=read_seconds)
        try:
            with self._http.stream(method, path, timeout=timeout, **request) as response:
                self._answered = True
                if response.is_error:
                    response.read()
                    _raise_for(response)
                yield response
        except httpx.ConnectError as error:
            raise self._unreachable(error) from None
        except httpx.TransportError as error:
            raise NoServer(f"the connection to {self.endpoint.url} broke: {error}") from None

    def _unreachable(self, error: httpx.TransportError) -> NoServer:
        return NoServer(
            f"cannot reach {self.endpoint.url} (from {self.endpoint.origin}): {error}; "
            "is the stack up? `tidegate ps` shows it, `tidegate up --detach` starts it"
        )


def _raise_for(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        problem = response.json()
        title, detail = str(problem.get("title", "")), str(problem.get("detail", ""))
    except (ValueError, AttributeError):
        title, detail = response.reason_phrase, response.text[:500]
    if response.status_code in (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT):
        raise Unavailable(detail or title or "the server cannot answer now: try again")
    raise Refused(response.status_code, title, detail)
