"""The gatekeeper's handlers on a real database, with the record kept by the one pure function that `api` uses."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from services.gatekeeper.admission import Policy
from services.gatekeeper.handlers import Gatekeeper
from services.gatekeeper.queries import Queries
from services.gatekeeper.room import Limits
from shared.contracts.events import encode_event
from shared.contracts.facts import decode_fact
from shared.contracts.ids import new_id
from shared.contracts.queries import Capacity, Quota, QuotaAnswer, QuotaAsked, QuotaSet
from shared.contracts.subjects import cluster_subject
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance, create
from shared.lifecycle.inputs import AnyInput, Hold, Release, Retry, Stop
from shared.lifecycle.record import JobRecord, Resources
from shared.runtime.clock import FixedClock
from shared.runtime.database import Database
from shared.runtime.messages import Delivery
from shared.runtime.standing import Standing

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


class World:
    """One gatekeeper, and the records of its jobs."""

    def __init__(self, db: Database, *, default: Limits | None = None) -> None:
        self.db = db
        self.clock = FixedClock(NOW)
        self.standing = Standing(epoch=1, restoring=False, backup_at=None)
        policy = Policy(
            default or Limits(),
            timedelta(seconds=30),
            timedelta(minutes=5),
            "gatekeeper/test",
            standing=lambda: self.standing,
            hears=lambda: self.connected,
        )
        self.connected = True
        self.gatekeeper = Gatekeeper(db, self.clock, policy)
        self.queries = Queries(db, self.clock, policy)
        self.records: dict[str, JobRecord] = {}
        self._read = 0
        self._delivered = 0
        self._numbers = 1000

    async def cluster(
        self,
        gpus: int = 8,
        slots: int = 64,
        *,
        name: str = "local",
        coretype: str = "local",
        reachable: bool = True,
        region: str | None = None,
        total_gpus: int | None = None,
    ) -> None:
        """A cluster reports what it has."""
        report = Capacity(
            cluster=name,
            coretype=coretype,
            gpus=gpus,
            slots=slots,
            region=region,
            reachable=reachable,
            total_gpus=total_gpus,
            at=self.clock.now(),
        )
        body = report.model_dump_json().encode()
        await self.gatekeeper.on_clusters([self._delivery(cluster_subject(name, "capacity"), body)])

    async def quota(self, tenant: str, **limits: int | None) -> Quota:
        """An admin sets limits."""
        fields: Any = tuple(limits)
        asked = QuotaSet(tenant=tenant, fields=fields, actor="root", **limits)
        answer = QuotaAnswer.model_validate_json(await self.queries.quota_set(asked.model_dump_json().encode()))
        return answer.quotas[0]

    async def used(self, tenant: str = "acme") -> tuple[int, int]:
        """(slots, GPUs) that open reservations hold."""
        asked = QuotaAsked(tenant=tenant).model_dump_json().encode()
        answer = QuotaAnswer.model_validate_json(await self.queries.quota_get(asked))
        return answer.quotas[0].slots_used, answer.quotas[0].gpus_used

    def a_job(
        self,
        *,
        gpus: int = 1,
        tenant: str = "acme",
        priority: int = 0,
        coretype: str = "local",
        region: str | None = None,
        age_seconds: float = 0,
        **more: Any,
    ) -> str:
        """A record just made; nobody has heard of it yet."""
        at = self.clock.now() - timedelta(seconds=age_seconds)
        record = create(
            id=new_id("j", at),
            tenant=tenant,
            user="rin",
            name="job",
            spec_digest="sha256:" + "0" * 64,
            resources=Resources(gpus=gpus, coretype=coretype, region=region),
            has_outputs=False,
            priority=priority,
            now=at,
            **more,
        )
        self.records[record.id] = record
        return record.id

    async def submit(self, count: int = 1, **job: Any) -> list[str]:
        """Jobs are submitted and their events arrive."""
        jobs = [self.a_job(**job) for _ in range(count)]
        await self.hears(*jobs)
        return jobs

    def event(self, record: JobRecord, name: str = "event") -> Delivery:
        wire = encode_event(record, name, self.clock.now())
        return self._delivery(wire.subject, wire.body)

    async def hears(self, *jobs: str) -> None:
        """The events of these jobs' records as they are now arrive in one batch."""
        await self.gatekeeper.on_events([self.event(self.records[job]) for job in jobs])

    def put(self, job: str, *inputs: AnyInput) -> JobRecord:
        """`api` applies inputs; the event is not delivered."""
        self.records[job] = advance(self.records[job], inputs, self.clock.now()).record
        return self.records[job]

    async def happens(self, job: str, *inputs: AnyInput) -> JobRecord:
        """`api` applies inputs and the event arrives."""
        record = self.put(job, *inputs)
        await self.hears(job)
        return record

    async def facts(self) -> list[f.AnyFact]:
        """What was reported since the last look, in order."""
        rows = await self.db.fetch("SELECT id, subject, body FROM outbox WHERE id > $1 ORDER BY id", self._read)
        self._read = rows[-1]["id"] if rows else self._read
        return [decode_fact(row["subject"], row["body"]) for row in rows]

    async def api_applies(self) -> list[f.AnyFact]:
        """`api` applies what was reported, and its events arrive."""
        told = await self.facts()
        for fact in told:
            self.put(fact.job, fact)
        for job in dict.fromkeys(fact.job for fact in told):
            await self.hears(job)
        return told

    async def admitted(self) -> list[str]:
        """Jobs let through since the last look."""
        return [fact.job for fact in await self.api_applies() if isinstance(fact, f.Admitted)]

    async def held(self) -> dict[str, str]:
        """Jobs told of a gate since the last look: the first gate and its sentence."""
        told = [fact for fact in await self.api_applies() if isinstance(fact, f.Held)]
        return {fact.job: f"{fact.gates[0].name}: {fact.gates[0].reason}" for fact in told}

    async def ends(self, *jobs: str, code: int = 0) -> None:
        """These jobs go all the way: staged, launched, run, exited, freed, sealed; only then their events arrive."""
        for job in jobs:
            self.walks(job, code=code)
        await self.hears(*jobs)

    def walks(self, job: str, *, code: int = 0) -> JobRecord:
        """All facts of a whole attempt."""
        return self.put(job, *self.launched(job), *self.ended(job, code=code))

    def launched(self, job: str) -> tuple[AnyInput, ...]:
        return (
            self.fact(job, f.Staged, directory="d", nothing_to_copy=True),
            self.fact(job, f.Accepted, segment=self._segment(job), backend="local", cluster="local", ref="1"),
            self.fact(job, f.SeenRunning, segment=self._segment(job), started_at=self.clock.now(), raw_state="up"),
        )

    def ended(self, job: str, *, code: int = 0) -> tuple[AnyInput, ...]:
        return (
            self.fact(
                job, f.Exited, segment=self._segment(job), code=code, ended_at=self.clock.now(), raw_state="exited"
            ),
            self.fact(job, f.GpusFreed),
            self.fact(job, f.LauncherSealed, ran=True),
        )

    def fact(self, job: str, kind: Any, **fields: Any) -> Any:
        """A fact about the job's current attempt."""
        self._numbers += 1
        record = self.records[job]
        return kind(
            job=job,
            tenant=record.tenant,
            attempt=record.attempt,
            version=f.Version(n=self._numbers),
            at=self.clock.now(),
            source="test",
            **fields,
        )

    def hold(self, by_admin: bool = False) -> Hold:
        return Hold(actor="rin", at=self.clock.now(), reason="wait for data", by_admin=by_admin)

    def release(self) -> Release:
        return Release(actor="rin", at=self.clock.now())

    def stop(self) -> Stop:
        return Stop(actor="rin", at=self.clock.now())

    def retry(self) -> Retry:
        return Retry(actor="rin", at=self.clock.now())

    async def reservations(self, job: str) -> Sequence[tuple[int, bool, bool]]:
        """(attempt, holds GPUs, holds a slot) of each of the job's reservations."""
        rows = await self.db.fetch(
            "SELECT attempt, gpus_ended_at IS NULL, slot_ended_at IS NULL FROM reservations WHERE job = $1"
            " ORDER BY attempt, admission",
            job,
        )
        return [tuple(row) for row in rows]

    def _segment(self, job: str) -> f.SegmentKey:
        return f.SegmentKey(submission=f"s-{job}-{self.records[job].attempt}", created_at=NOW)

    def _delivery(self, subject: str, body: bytes) -> Delivery:
        self._delivered += 1
        return Delivery(subject, body, {}, 1, self._delivered)
