"""Submitting: what is refused at once, what is only warned of, and the one transaction that makes the jobs."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from services.api.access import Caller
from services.api.asking import Asking
from services.api.budgets import Budgets
from services.api.domain import Change
from services.api.offered import not_carried_out, overridden
from services.api.pipelines import NewPipeline
from services.api.problems import Problem
from services.api.reads import Reads
from services.api.sentences import place
from services.api.store import Entry, JobStore
from services.api.submission import Submission
from services.api.texts import not_storable
from shared.contracts.ids import new_id
from shared.contracts.spec import MAX_SPEC_BYTES, SubmitRequest
from shared.lifecycle.advance import create
from shared.lifecycle.record import JobRecord, Resources
from shared.runtime.clock import Clock
from shared.runtime.database import Database

_BREATHE_AFTER: Final = 200  # jobs made between two turns of the event loop

RECALL: Final = "SELECT digest, response FROM idempotency WHERE tenant = $1 AND key = $2"
CLAIM: Final = """
INSERT INTO idempotency (tenant, key, digest, response) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING RETURNING 1
"""


@dataclass(frozen=True, slots=True)
class New:
    """The first version of a job about to be inserted, and its spec's JSON."""

    record: JobRecord
    spec: str


@dataclass(frozen=True, slots=True)
class Key:
    """An Idempotency-Key with the sha256 of the request that it stands for."""

    key: str
    digest: bytes

    @classmethod
    def of(cls, key: str | None, requests: Sequence[BaseModel]) -> "Key | None":
        """None where no key was sent. Equal jobs make equal digests, however their JSON was written."""
        if key is None:
            return None
        if not 1 <= len(key) <= 255 or not key.isprintable():
            given = f"an Idempotency-Key of {len(key)} characters was given"
            raise Problem("invalid", f"{given}: use 1 to 255 printable ones")
        digest = hashlib.sha256()
        for request in requests:
            digest.update(json.dumps(request.model_dump(), sort_keys=True).encode())
        return cls(key, digest.digest())


class Submitting:
    """Makes jobs."""

    def __init__(
        self,
        database: Database,
        store: JobStore,
        reads: Reads,
        asking: Asking,
        clock: Clock,
        budgets: Budgets,
        epoch: Callable[[], int],
    ) -> None:
        self._database = database
        self._store = store
        self._reads = reads
        self._asking = asking
        self._clock = clock
        self._budgets = budgets
        self._epoch = epoch

    async def submit(
        self, caller: Caller, given: Submission, key: Key | None, answer: Callable[[Sequence[New]], str]
    ) -> str:
        """All jobs or none, and the JSON that `answer` makes of them; a known key gives its first answer again."""
        if key is not None and (told := await self._recall(caller.tenant, key)) is not None:
            return told
        specs = self._checked(given)
        _all_stored(caller.tenant, given, await self._reads.known_snapshots(caller.tenant, given.snapshots))
        warnings = await self._could_pass(caller.tenant, given)
        now = self._clock.now()
        pipeline = given.new_pipeline(caller.user, now)
        new = await self._made(caller, given, pipeline, specs, warnings, now)
        response = answer(new)
        entries = await _encoded(new)
        async with self._store.transaction() as tx:
            if key is None or await tx.tx.fetchval(CLAIM, caller.tenant, key.key, key.digest, response):
                _all_stored(caller.tenant, given, await tx.kept_snapshots(caller.tenant, given.snapshots))
                await tx.create(caller.tenant, entries, {one.record.spec_digest: one.spec for one in new}, pipeline)
                return response
        told = None if key is None else await self._recall(caller.tenant, key)
        assert told is not None, "only another request with the same key can have come first"
        return told

    async def _recall(self, tenant: str, key: Key) -> str | None:
        row = await self._database.fetchrow(RECALL, tenant, key.key)
        if row is not None and row["digest"] != key.digest:
            detail = f"{key.key!r} came with another request in the last day: use a new key for a new request"
            raise Problem("idempotency-key-reused", detail)
        return None if row is None else row["response"]

    def _checked(self, given: Submission) -> list[str]:
        """The specs' JSON; refuses what nothing carries out, what is too long, and what the database cannot hold."""
        specs = []
        for index, request in enumerate(given.requests):
            if why := _not_storable(request):
                raise Problem("invalid", f"{given.field(index)}{why}")
            if why := not_carried_out(request.spec) or self._budgets.why_not(request):
                raise Problem("invalid", f"{given.field(index)}{why}")
            spec = request.spec.model_dump_json()
            size = len(spec.encode())
            if size > MAX_SPEC_BYTES:
                raise Problem(
                    "too-large",
                    f"{given.job(index)}spec has {size} bytes, and {MAX_SPEC_BYTES} are allowed: "
                    "put long lists into a file of the submitted directory",
                )
            specs.append(spec)
        return specs

    async def _could_pass(self, tenant: str, given: Submission) -> tuple[str, ...]:
        """Refuse what no gate would ever let through; a warning where that could not be found out."""
        asked: dict[Resources, int] = {}
        for index, request in enumerate(given.requests):
            asked.setdefault(request.spec.resources(), index)
        answer = await self._asking.fits(tenant, list(asked))
        if isinstance(answer, str):
            return (f"could not be checked at submit: whether it fits the quota and the clusters ({answer})",)
        for index, why_not in zip(asked.values(), answer, strict=True):
            if why_not is not None:
                raise Problem("can-never-run", f"{given.job(index)}{why_not}")
        return ()

    async def _made(
        self,
        caller: Caller,
        given: Submission,
        pipeline: NewPipeline | None,
        specs: Sequence[str],
        warnings: tuple[str, ...],
        now: datetime,
    ) -> list[New]:
        """The records, whose ids rise in the order given."""
        ids = sorted(new_id("j", now) for _ in given.requests)
        new = []
        for index, (id_, request, spec) in enumerate(zip(ids, given.requests, specs, strict=True)):
            if index % _BREATHE_AFTER == _BREATHE_AFTER - 1:
                await asyncio.sleep(0)
            record = create(
                id=id_,
                tenant=caller.tenant,
                user=caller.user,
                name=given.name(index),
                spec_digest=request.spec.digest(),
                resources=request.spec.resources(),
                has_outputs=bool(request.spec.outputs or request.spec.expect),
                now=now,
                epoch=self._epoch(),
                project=request.project,
                kind="batch" if given.workstation is None else "workstation",
                workstation=given.workstation,
                pipeline=given.place(index, pipeline, ids),
                priority=request.priority,
                retries=self._budgets.given_to(request),
                signals=request.spec.signals(),
                warnings=(*warnings, *overridden(request.spec)),
            )
            new.append(New(record, spec))
        return new


def _all_stored(tenant: str, given: Submission, known: Container[str]) -> None:
    """Refuse a submission of which a snapshot is not stored."""
    for index, request in enumerate(given.requests):
        if request.spec.snapshot is not None and request.spec.snapshot not in known:
            raise Problem(
                "invalid",
                f"{given.field(index)}spec.snapshot: {request.spec.snapshot} is not stored for tenant "
                f"{tenant}: send it first with PUT /v1/snapshots/DIGEST",
            )


def _not_storable(request: SubmitRequest) -> str | None:
    """The sentence about a text that cannot be stored."""
    try:
        if "\\u0000" not in request.model_dump_json():
            return None
    except PydanticSerializationError:
        pass  # half a character somewhere: found below
    found = not_storable(request.model_dump())
    return None if found is None else f"{place(found[0])}: {found[1]}"


async def _encoded(new: Sequence[New]) -> list[Entry]:
    """Encode before the transaction begins: it is short then."""
    entries = []
    for index, one in enumerate(new):
        if index % _BREATHE_AFTER == _BREATHE_AFTER - 1:
            await asyncio.sleep(0)
        entries.append(Entry.of(Change(one.record, "queued", one.record.submitted_at, "[]")))
    return entries
