"""What the routes work with, and how they get it."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from fastapi import Depends, Request
from obstore.store import ObjectStore
from starlette.responses import Response

from services.api.access import Access, Caller
from services.api.asking import Asking
from services.api.door import admin_of, caller_of
from services.api.feed import Feed
from services.api.problems import Problem, deleted, job_not_found
from services.api.proxy import Proxy
from services.api.reads import Found, Reads
from services.api.settings import ApiSettings
from services.api.store import JobStore
from services.api.stored import Stored
from services.api.submit import Submitting
from services.api.visits import Visits
from shared.contracts.ids import is_id
from shared.contracts.queries import Manifest
from shared.runtime.clock import Clock
from shared.runtime.database import Database


@dataclass(frozen=True, slots=True)
class Api:
    """The parts of this service, made once in `app.py`."""

    settings: ApiSettings
    database: Database
    clock: Clock
    access: Access
    reads: Reads
    store: JobStore
    stored: Stored
    asking: Asking
    submitting: Submitting
    feed: Feed
    blobs: ObjectStore
    visits: Visits
    proxy: Proxy
    job_path: str
    """PATH of the jobs that set none."""
    manifests: dict[str, Manifest] = field(default_factory=dict)
    """Large ones, by their name in the blob store."""

    async def job(self, caller: Caller, job: str) -> Found:
        """The caller's job; another tenant's is as unknown as an id that never was."""
        found = await self.reads.job(caller.tenant, checked_id(job))
        if found is None:
            raise await self.no_job(caller, job)
        return found

    async def no_job(self, caller: Caller, job: str) -> Problem:
        """The answer about a job that has no row: one of the caller's that was deleted is told apart."""
        deleted_at = await self.reads.deleted_at(caller.tenant, checked_id(job))
        return job_not_found(job) if deleted_at is None else deleted(f"job {job}", deleted_at)


async def api_of(request: Request) -> Api:
    """The parts, for a route."""
    api = request.app.state.api
    assert isinstance(api, Api)
    return api


ApiPart = Annotated[Api, Depends(api_of)]
CallerPart = Annotated[Caller, Depends(caller_of)]
AdminPart = Annotated[Caller, Depends(admin_of)]


def checked_id(job: str) -> str:
    """The id, once it has the form of one: no other text reaches the database."""
    if not is_id(job):
        raise job_not_found(job)
    return job


def as_json(content: Any, status: int = 200) -> Response:
    """An answer without going through a model again."""
    return Response(orjson.dumps(content), status, media_type="application/json")


def number(text: str | None, name: str, *, default: int, most: int) -> int:
    """A whole number from 0 to `most`, as text from a query or a header."""
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > most:
        raise Problem("invalid", f"{name}: {text[:40]!r} was given; it is a whole number from 0 to {most}")
    return int(text)
