"""A stager on real stores, and the part of `api` that it talks to: real records, moved by `advance`."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import nats
import orjson
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError

from services.stager.app import create
from services.stager.settings import StagerSettings
from shared.backends.local import layout
from shared.client.snapshot import pack
from shared.contracts.events import encode_event
from shared.contracts.facts import decode_fact
from shared.contracts.ids import new_id
from shared.contracts.queries import (
    Manifest,
    NewestAnswer,
    NewestAsked,
    OutputsAnswer,
    OutputsAsked,
    SpecsAnswer,
    SpecsAsked,
)
from shared.contracts.spec import JobSpec
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance
from shared.lifecycle.advance import create as create_record
from shared.lifecycle.inputs import AnyInput
from shared.lifecycle.record import JobRecord
from shared.runtime.service import Service
from shared.runtime.topology import ensure
from tests.databases import FreshDatabase, ServiceDatabase
from tests.patience import PATIENCE_SECONDS
from tests.servers import NatsServer

TENANT = "acme"


async def eventually(
    condition: Callable[[], Awaitable[object] | object], what: str, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait for a condition; a test that waits in vain says for what."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return
        if asyncio.get_running_loop().time() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        await asyncio.sleep(0.01)


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class World:
    """The stager's surroundings. `told` are the facts it reported, in the order of their coming."""

    database: ServiceDatabase
    nats_server: NatsServer
    root: Path
    blobs: Path
    connection: Client
    records: dict[str, JobRecord] = field(default_factory=dict)
    specs: dict[str, JobSpec] = field(default_factory=dict)
    told: list[f.AnyFact] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    applies: bool = True
    """Whether facts are applied to the records at once, as `api` does."""
    answers_specs: bool = True
    restoring: bool = False
    """What `api` says of itself after a restore."""

    def environ(self, **more: str) -> dict[str, str]:
        """What a stager is started with. Its leases do not run out during a test, unless the test says so."""
        return {
            "TIDEGATE_DATABASE_URL": self.database.url,
            "TIDEGATE_NATS_URL": self.nats_server.url,
            "TIDEGATE_NATS_USER": "stager",
            "TIDEGATE_NATS_PASSWORD": self.nats_server.password("stager"),
            "TIDEGATE_BLOB_URL": self.blobs.as_uri(),
            "TIDEGATE_LOCAL_ROOT": str(self.root),
            "TIDEGATE_STAGING_LEASE_SECONDS": "3600",
            "TIDEGATE_REPLICA": "one",
        } | more

    def service(self, **more: str) -> Service:
        return create(StagerSettings.load(self.environ(**more)))

    async def leases_run_out(self) -> None:
        """As they do when whoever has them was away for too long."""
        connection = await asyncpg.connect(self.database.superuser_url)
        try:
            await connection.execute("UPDATE stager.staging SET deadline = now() - interval '1 second'")
        finally:
            await connection.close()

    @asynccontextmanager
    async def stager(self, **more: str) -> AsyncIterator[Service]:
        """A stager inside this process."""
        service = self.service(**more)
        async with service.lifespan():
            yield service

    def snapshot(self, directory: Path, extra: Sequence[str] = (), tenant: str = TENANT) -> str:
        """Pack a directory into the blob store; its digest."""
        with pack(directory, extra) as packed:
            return self.store_snapshot(packed.file.read(), packed.digest, tenant)

    def store_snapshot(self, content: bytes, digest: str, tenant: str = TENANT) -> str:
        folder = self.blobs / tenant / "snapshots"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{digest.removeprefix('sha256:')}.tar.gz").write_bytes(content)
        return digest

    async def submit(self, *command: str, tenant: str = TENANT, **spec: Any) -> str:
        """A job that was just admitted: its event is published; its id."""
        job = self.record(*command, tenant=tenant, **spec)
        await self.publish(job)
        return job

    def record(self, *command: str, tenant: str = TENANT, **spec: Any) -> str:
        """The same without publishing anything."""
        what = JobSpec(command=command, **spec)
        digest = what.digest()
        self.specs[digest] = what
        record = create_record(
            id=new_id("j", now()),
            tenant=tenant,
            user="rin",
            name="job",
            spec_digest=digest,
            resources=what.resources(),
            has_outputs=bool(what.outputs),
            now=now(),
        )
        self.records[record.id] = record
        self.apply(record.id, [f.Admitted(**self.heading(record.id, 1), admission=1)])
        return record.id

    def heading(self, job: str, n: int, attempt: int | None = None) -> dict[str, Any]:
        record = self.records[job]
        version = f.Version(n=n)
        at = {"at": now(), "source": "test", "version": version}
        return {"job": job, "tenant": record.tenant, "attempt": attempt or record.attempt, **at}

    def apply(self, job: str, inputs: Sequence[AnyInput]) -> str | None:
        """Advance a record without publishing; the event's name."""
        advanced = advance(self.records[job], inputs, now())
        self.records[job] = advanced.record
        return advanced.event

    async def move(self, job: str, *inputs: AnyInput) -> None:
        """Advance a record and publish the event."""
        event = self.apply(job, inputs)
        if event is not None:
            await self.publish(job, event)

    async def publish(self, job: str, event: str = "submitted", record: JobRecord | None = None) -> None:
        """The event of a record as it is now (or was)."""
        await self.publish_all([record or self.records[job]], event)

    async def publish_all(self, records: Sequence[JobRecord], event: str = "submitted") -> None:
        js = self.connection.jetstream(timeout=PATIENCE_SECONDS)
        for record in records:
            wire = encode_event(record, event, now())
            await js.publish(wire.subject, wire.body, headers=dict(wire.headers))

    async def ran(self, job: str, code: int = 0) -> None:
        """The job's command has run and ended."""
        segment = f.SegmentKey(submission="s1", created_at=now())
        took = f.Accepted(**self.heading(job, 10), segment=segment, backend="local", cluster="local", ref="s1")
        ended = f.Exited(
            **self.heading(job, 11), segment=segment, code=code, started_at=now(), ended_at=now(), raw_state="exited"
        )
        await self.move(job, took, ended)

    def facts(self, job: str, kind: str) -> list[Any]:
        """What was told of a job, by kind."""
        return [fact for fact in self.told if fact.job == job and fact.kind == kind]

    async def told_of(self, job: str, kind: str, count: int = 1, seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait for a fact of a kind; the last one."""
        await eventually(lambda: len(self.facts(job, kind)) >= count, f"{count} {kind} of {job}", seconds)
        return self.facts(job, kind)[-1]

    async def outputs(self, job: str, tenant: str = TENANT) -> Manifest | None:
        """Ask the stager, which may be about to start."""
        asked = OutputsAsked(tenant=tenant, job=job).model_dump_json().encode()
        answers: list[OutputsAnswer] = []

        async def answered() -> bool:
            with suppress(NoRespondersError):
                reply = await self.connection.request("rpc.v1.stager.outputs", asked, PATIENCE_SECONDS)
                answers.append(OutputsAnswer.model_validate_json(reply.data))
            return bool(answers)

        await eventually(answered, "the stager to answer")
        return answers[0].manifest

    def workdir(self, job: str, epoch: int | None = None) -> Path:
        """The published directory of the current attempt, or that of an epoch."""
        attempt = Path(
            layout.attempt_directory(str(self.root), self.records[job].tenant, job, self.records[job].attempt)
        )
        if epoch is not None:
            return attempt / f"e{epoch}"
        return self.root / str(self.facts(job, "staged")[-1].directory)

    def content(self, manifest: Manifest, path: str) -> bytes:
        entry = next(entry for entry in manifest.files if entry.path == path)
        return (self.blobs / manifest.prefix / entry.key).read_bytes()

    async def on_fact(self, message: Msg) -> None:
        fact = decode_fact(message.subject, message.data)
        self.told.append(fact)
        self.ids.append((message.headers or {}).get("Nats-Msg-Id", ""))
        if self.applies and fact.job in self.records:
            await self.move(fact.job, fact)

    async def on_specs(self, message: Msg) -> None:
        if not self.answers_specs:
            return
        asked = SpecsAsked.model_validate_json(message.data)
        known = {digest: self.specs[digest] for digest in asked.digests if digest in self.specs}
        await message.respond(SpecsAnswer(specs=known).model_dump_json().encode())

    async def on_standing(self, message: Msg) -> None:
        await message.respond(orjson.dumps({"epoch": 2, "restoring": self.restoring, "unsent": 0}))

    async def on_newest(self, message: Msg) -> None:
        asked = NewestAsked.model_validate_json(message.data)
        known = [self.records[job] for job in asked.jobs if job in self.records]
        events = tuple(encode_event(record, "stage", now()).body.decode() for record in known)
        await message.respond(NewestAnswer(events=events).model_dump_json().encode())


@pytest.fixture
async def world(
    service_database: FreshDatabase, nats_server: NatsServer, nats_url: str, tmp_path: Path
) -> AsyncIterator[World]:
    """Empty stores, and somebody who answers for `api`."""
    database = await service_database("stager")
    root = tmp_path / "local"
    layout.make_root(str(root))
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    connection = await nats.connect(nats_url, **nats_server.login("admin"))
    await ensure(connection.jetstream(timeout=PATIENCE_SECONDS))
    world = World(database, nats_server, root, blobs, connection)
    await connection.subscribe("facts.v1.stager.>", cb=world.on_fact)
    await connection.subscribe("rpc.v1.api.specs", cb=world.on_specs)
    await connection.subscribe("rpc.v1.api.newest", cb=world.on_newest)
    await connection.subscribe("rpc.v1.api.standing", cb=world.on_standing)
    yield world
    await connection.close()


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A directory with files."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def listing(root: Path) -> dict[str, bytes]:
    """Every file below a directory, with its content."""
    found: dict[str, bytes] = {}
    for folder, _, names in os.walk(os.fsencode(root)):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.fsdecode(os.path.relpath(path, os.fsencode(root)))] = file.read()
    return found
