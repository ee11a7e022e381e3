"""Settings -> stores -> parts -> routes. One process serves HTTP and consumes facts."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import asyncpg
from fastapi import APIRouter, Depends, FastAPI, Request, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from obstore.store import LocalStore, ObjectStore, from_url
from starlette.exceptions import HTTPException
from starlette.responses import Response

from services.api import handlers
from services.api.access import Access
from services.api.announce import Announcer
from services.api.asking import Asking
from services.api.budgets import Budgets
from services.api.context import Api
from services.api.door import Door, caller_of, database_away, queries_are_known
from services.api.facts import Facts
from services.api.feed import Feed
from services.api.outbox import EventLog
from services.api.problems import CONTENT_TYPE, Problem, ProblemBody, of_status
from services.api.proxy import Proxy
from services.api.proxy_target import Targets
from services.api.reads import Reads
from services.api.resets import Resets
from services.api.restore import Restore
from services.api.routes import (
    admin,
    commands,
    events,
    explain,
    jobs,
    logs,
    outputs,
    pipelines,
    snapshots,
    usage,
    workstations,
    workstations_proxy,
)
from services.api.sentences import invalid
from services.api.settings import ApiSettings
from services.api.store import JobStore
from services.api.stored import Stored
from services.api.submit import Submitting
from services.api.visiting import Visiting
from services.api.visits import Visits
from shared.backends.local.environment import build
from shared.runtime.clock import Clock
from shared.runtime.errors import Unavailable
from shared.runtime.service import Service

ROUTERS: Final[tuple[APIRouter, ...]] = (
    jobs.router,
    commands.router,
    explain.router,
    pipelines.router,
    workstations.router,
    events.router,
    logs.router,
    outputs.router,
    snapshots.router,
    usage.router,
    admin.router,
)


LETS_IN: Final = [Depends(caller_of)]
REFUSES: Final = [*LETS_IN, Depends(queries_are_known), Security(HTTPBearer(auto_error=False))]
"""On every route: whoever was not let in is refused, and so is a query parameter that would be ignored (those of
workstations' own pages are passed on). The last one only puts the scheme into the OpenAPI document."""
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    code: {
        "description": "A problem (RFC 9457)",
        "content": {CONTENT_TYPE: {"schema": ProblemBody.model_json_schema()}},
    }
    for code in (422, "default")
}


def create_app(settings: ApiSettings, *, clock: Clock | None = None) -> tuple[FastAPI, Service, Feed]:
    """The application, the service that runs in its lifespan, and the streams to close before it stops."""
    service = Service("api", settings, clock=clock, relay_source=EventLog, restores_itself=True)
    feed = Feed(service.db)
    store = JobStore(service.db, feed.grown)
    reads = Reads(service.db)
    asking = Asking(service)
    access = Access(service.db, single_tenant=settings.single_tenant)
    blobs = _blob_store(settings.blob_url)
    stored = Stored(service.db, blobs, service.log)
    submitting = Submitting(
        service.db, store, reads, asking, service.clock, Budgets.of(settings), epoch=lambda: service.standing.epoch
    )
    visits = Visits(service.db)
    proxy = Proxy(Targets(service.db, asking))
    lease = service.lease("announce")
    announcer = Announcer(service.db, service.clock, service.broker.lag, lease)
    resets = Resets(service.db, store, service.clock, lease)
    restore = Restore(service, resets, service.broker.lag, lease)
    handlers.register(service, Facts(service, store), announcer, resets, restore, stored)
    service.every(0)(feed.poll)

    @service.every(60)
    async def sweep_visits() -> None:
        await visits.sweep(service.clock.now())

    @service.on_start
    async def bootstrap() -> None:
        await access.bootstrap(settings.bootstrap_tokens, service.clock.now())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.lifespan():
            try:
                yield
            finally:
                feed.close()
                await proxy.close()

    app = FastAPI(
        title="Tidegate",
        version="1",
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.api = Api(
        settings=settings,
        database=service.db,
        clock=service.clock,
        access=access,
        reads=reads,
        store=store,
        stored=stored,
        asking=asking,
        submitting=submitting,
        feed=feed,
        blobs=blobs,
        visits=visits,
        proxy=proxy,
        job_path=settings.job_path or build({}, own={}, attempt_directory="", devices=())["PATH"],
    )
    for router in ROUTERS:
        app.include_router(router, prefix="/v1", dependencies=REFUSES, responses=PROBLEMS)
    app.include_router(workstations_proxy.router, prefix="/v1", dependencies=LETS_IN, responses=PROBLEMS)
    _answer_errors(app, service)
    app.add_middleware(
        Door,
        access=access,
        visiting=Visiting(visits),
        clock=service.clock,
        max_batch_bytes=settings.max_batch_bytes,
        max_snapshot_bytes=settings.max_snapshot_bytes,
    )
    return app, service, feed


def _answer_errors(app: FastAPI, service: Service) -> None:
    """Every error becomes a problem; an unforeseen one shows a number that the log has too, and nothing else."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        problem = error if isinstance(error, Problem) else of_status(error, request.method, request.url.path)
        return problem.response(request.url.path)

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> Response:
        body = getattr(request.scope.get("route"), "body_field", None)
        given_as = None if body is None else body.field_info.annotation
        return invalid(error.errors(), given_as).response(request.url.path)

    @app.exception_handler(Unavailable)
    async def away(request: Request, error: Unavailable) -> Response:
        service.log.warning("request not answered", error=str(error))
        return database_away().response(request.url.path)

    @app.exception_handler(asyncpg.QueryCanceledError)
    @app.exception_handler(asyncpg.LockNotAvailableError)
    @app.exception_handler(asyncpg.DeadlockDetectedError)
    async def busy(request: Request, error: Exception) -> Response:
        service.log.warning("request gave way", error=str(error))
        detail = "the database is too busy for this now: nothing was changed. Try again in a moment"
        return Problem("unavailable", detail, headers={"Retry-After": "2"}).response(request.url.path)

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, error: Exception) -> Response:
        number = uuid.uuid4().hex[:12]
        service.log.error("request failed", error=error, number=number, method=request.method)
        return Problem("internal", f"this is our fault, not yours; the log has it under {number}").response(
            request.url.path
        )


def _blob_store(url: str) -> ObjectStore:
    """The store behind `TIDEGATE_BLOB_URL`; a `file:` one makes its folder."""
    if url.startswith("file:"):
        folder = Path(unquote(urlsplit(url).path))
        folder.mkdir(parents=True, exist_ok=True)
        return LocalStore(prefix=folder)
    return from_url(url)
