"""Workstations over HTTP: what the API shows, and one method per route."""

from typing import Any
from urllib.parse import urljoin

from pydantic import AwareDatetime, BaseModel, ConfigDict

from shared.client.client import Tidegate
from shared.client.views import JobView
from shared.contracts.workstations import WorkstationRequest
from shared.lifecycle.record import Workstation


class WorkstationView(JobView):
    """A workstation as `GET /v1/workstations/{id}` returns it: its job, its place in the line while it waits, and where
    it is reached below the server's address."""

    workstation: Workstation
    position: int | None = None
    url: str


class WorkstationPage(BaseModel):
    """One page of a listing; `next_cursor` asks for the next, none at the end."""

    items: tuple[WorkstationView, ...]
    next_cursor: str | None = None


class Ticket(BaseModel):
    """An address for a browser, below the server's: good once, until `expires_at`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    url: str
    expires_at: AwareDatetime


class Workstations:
    """The workstations of a client's tenant."""

    def __init__(self, client: Tidegate) -> None:
        self._client = client

    def start(self, request: WorkstationRequest, *, idempotency_key: str | None = None) -> WorkstationView:
        """Start one; the same key and request again give the same."""
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = request.model_dump(mode="json", exclude_defaults=True)
        return WorkstationView.model_validate(self._client.call("POST", "/v1/workstations", json=body, headers=headers))

    def page(self, *, limit: int = 50, cursor: str | None = None) -> WorkstationPage:
        """One page, newest first."""
        params = {"limit": limit} | ({"cursor": cursor} if cursor else {})
        return WorkstationPage.model_validate(self._client.call("GET", "/v1/workstations", params=params))

    def one(self, workstation: str) -> WorkstationView:
        return WorkstationView.model_validate(self._client.call("GET", f"/v1/workstations/{workstation}"))

    def command(self, workstation: str, action: str, body: dict[str, Any] | None = None) -> WorkstationView:
        """suspend, resume, snooze or stop."""
        path = f"/v1/workstations/{workstation}/{action}"
        return WorkstationView.model_validate(self._client.call("POST", path, json=body or {}))

    def ticket(self, workstation: str) -> str:
        """A whole address for a browser, good once."""
        given = Ticket.model_validate(self._client.call("POST", f"/v1/workstations/{workstation}/ticket", json={}))
        return urljoin(self._client.endpoint.url, given.url)
