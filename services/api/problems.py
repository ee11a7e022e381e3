"""RFC 9457 answers: every error says what was given, what is right and what to do, and shows no inside."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from services.api.pages import UNFRAMED

CONTENT_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:tidegate:problem:"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: its HTTP status and its title, the same every time."""

    status: int
    title: str


KINDS: Final[Mapping[str, Kind]] = {
    "malformed": Kind(400, "The request cannot be read"),
    "unauthenticated": Kind(401, "No valid token"),
    "forbidden": Kind(403, "Not allowed with this token"),
    "not-found": Kind(404, "Not found"),
    "method-not-allowed": Kind(405, "Not possible here"),
    "conflict": Kind(409, "Not possible now"),
    "idempotency-key-reused": Kind(409, "This Idempotency-Key was used for another request"),
    "too-large": Kind(413, "Too large"),
    "unsupported-media-type": Kind(415, "Unsupported content type"),
    "range-not-satisfiable": Kind(416, "No such range"),
    "invalid": Kind(422, "The request is not valid"),
    "can-never-run": Kind(422, "The job could never run"),
    "internal": Kind(500, "A fault of the server"),
    "service-error": Kind(502, "A service behind the server answered with an error"),
    "unavailable": Kind(503, "Temporarily not available"),
}
_BY_STATUS: Final = {kind.status: name for name, kind in reversed(list(KINDS.items()))}


class ProblemBody(BaseModel):
    """The members that every problem has."""

    type: str
    title: str
    status: int
    detail: str
    instance: str


class Problem(HTTPException):
    """An answer that is no success. `detail` is a sentence for a person; `more` adds members for programs."""

    def __init__(self, kind: str, detail: str, *, headers: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(KINDS[kind].status, detail, headers)
        self.kind = kind
        self.more = more

    def response(self, path: str) -> Response:
        """As it goes out; `path` is the request's."""
        body = ProblemBody(
            type=_TYPE + self.kind,
            title=KINDS[self.kind].title,
            status=self.status_code,
            detail=self.detail,
            instance=path,
        )
        headers = {**(self.headers or {}), **UNFRAMED}
        return Response(json.dumps(body.model_dump() | self.more), self.status_code, headers, CONTENT_TYPE)


def of_status(error: HTTPException, method: str, path: str) -> Problem:
    """The framework's own refusals in our words."""
    kind = _BY_STATUS.get(error.status_code, "malformed")
    detail = str(error.detail)
    if error.status_code == 400:
        detail = "the body cannot be read as JSON: send one JSON object in UTF-8, of no great depth"
    elif error.status_code == 404:
        detail = f"there is nothing at {path}: GET /v1/openapi.json lists what there is"
    elif error.status_code == 405:
        detail = f"{method} is not possible at {path}: GET /v1/openapi.json lists what is"
    return Problem(kind, detail, headers=error.headers)


def job_not_found(job: str) -> Problem:
    """The same for an id that is not known and for another tenant's."""
    return Problem("not-found", f"there is no job {job[:60]!r}: GET /v1/jobs lists those of your tenant")


def deleted(what: str, at: datetime) -> Problem:
    """For the tenant whose job or pipeline it was."""
    said = f"{what} was deleted at {at:%Y-%m-%d %H:%M:%S} UTC: nothing of it can be shown or done"
    return Problem("not-found", said)


def unavailable(service: str, what: str, still: str) -> Problem:
    """A service behind this one does not answer."""
    detail = f"{service} does not answer, so {what}; {still}. Try again in a moment"
    return Problem("unavailable", detail, headers={"Retry-After": "2"}, service=service)
