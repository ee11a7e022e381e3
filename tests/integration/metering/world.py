"""Metering's handlers on a real database, fed with the events of a record that the one pure function keeps."""

from datetime import UTC, datetime, timedelta
from typing import Any

from services.metering.handlers import Metering
from shared.contracts.events import encode_event
from shared.contracts.ids import new_id
from shared.contracts.queries import UsageAnswer, UsageAsked, UsageRow
from shared.contracts.usage import UsageLine, decode_line
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance, create
from shared.lifecycle.inputs import AnyInput
from shared.lifecycle.record import JobRecord, Resources, Retries
from shared.runtime.database import Database
from shared.runtime.messages import Delivery

DAY = datetime(2026, 11, 30, tzinfo=UTC)


def at(clock: str) -> datetime:
    """`"08:20:10"` or `"2 13:00"`: a time of the test's day, or so many days later."""
    days, _, time = clock.rpartition(" ")
    hours, minutes, *seconds = time.split(":")
    return DAY + timedelta(
        days=int(days or 0), hours=int(hours), minutes=int(minutes), seconds=float(seconds[0]) if seconds else 0
    )


class World:
    """Metering, and one job whose facts and events a test makes."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.metering = Metering(db)
        self.number = 0
        self._read = 0
        self._delivered = 0

    def job(self, *, gpus: int = 1, tenant: str = "acme", user: str = "rin", infrastructure_budget: int = 5) -> "Job":
        """A job that was let through and accepted by the backend."""
        record = create(
            id=new_id("j", DAY),
            tenant=tenant,
            user=user,
            name="job",
            spec_digest="sha256:" + "0" * 64,
            resources=Resources(gpus=gpus),
            has_outputs=False,
            retries=Retries(infrastructure_budget=infrastructure_budget),
            now=DAY,
        )
        job = Job(self, record)
        job.is_let_through()
        return job

    async def hears(self, *events: Delivery) -> None:
        """These events arrive in one batch."""
        await self.metering.on_events(events)

    async def lines(self) -> list[UsageLine]:
        """What was added to the ledger since the last look."""
        rows = await self.db.fetch("SELECT id, msg_id, body FROM outbox WHERE id > $1 ORDER BY id", self._read)
        self._read = rows[-1]["id"] if rows else self._read
        lines = [decode_line(row["body"]) for row in rows]
        assert [line.id for line in lines] == [row["msg_id"] for row in rows]
        return lines

    async def usage(
        self, group_by: Any = "tenant", tenant: str | None = None, job: str | None = None
    ) -> list[UsageRow]:
        return list((await self.usage_answer(UsageAsked(tenant=tenant, job=job, group_by=group_by))).rows)

    async def usage_answer(self, asked: UsageAsked) -> UsageAnswer:
        return UsageAnswer.model_validate_json(await self.metering.usage(asked.model_dump_json().encode()))

    def delivery(self, subject: str, body: bytes) -> Delivery:
        self._delivered += 1
        return Delivery(subject, body, {}, 1, self._delivered)


class Job:
    """One job: every method applies a fact and gives the event that follows."""

    def __init__(self, world: World, record: JobRecord) -> None:
        self.world = world
        self.record = record

    def is_let_through(self) -> None:
        """Admitted, staged."""
        number = self.world.number = self.world.number + 1
        self.apply(self.fact(f.Admitted, admission=number))
        self.apply(self.fact(f.Staged, directory="d", nothing_to_copy=True))

    def accepted(self, restart: int = 0) -> Delivery:
        segment = self.segment(restart)
        return self.apply(self.fact(f.Accepted, segment=segment, backend="local", cluster="local", ref="1"))

    def pending(self, restart: int = 0) -> Delivery:
        return self.apply(self.fact(f.SeenPending, segment=self.segment(restart), raw_state="PENDING"))

    def running(self, start: str, seen: str | None = None, restart: int = 0, **more: Any) -> Delivery:
        fact = self.fact(
            f.SeenRunning, segment=self.segment(restart), started_at=at(start), raw_state="RUNNING", **more
        )
        return self.apply(fact.model_copy(update={"at": at(seen or start)}))

    def exited(self, end: str, code: int = 0, restart: int = 0, **more: Any) -> Delivery:
        return self.apply(
            self.fact(
                f.Exited, segment=self.segment(restart), code=code, ended_at=at(end), raw_state="COMPLETED", **more
            )
        )

    def requeued(self, end: str, restart: int = 0) -> Delivery:
        return self.apply(
            self.fact(f.SegmentRequeued, segment=self.segment(restart), ended_at=at(end), raw_reason="PREEMPTED")
        )

    def lost(self) -> Delivery:
        return self.apply(self.fact(f.Lost))

    def sealed(self) -> Delivery:
        return self.apply(self.fact(f.GpusFreed), self.fact(f.LauncherSealed, ran=True))

    def fact(self, kind: Any, **fields: Any) -> Any:
        self.world.number += 1
        return kind(
            job=self.record.id,
            tenant=self.record.tenant,
            attempt=self.record.attempt,
            version=f.Version(n=self.world.number),
            at=DAY,
            source="test",
            **fields,
        )

    def segment(self, restart: int) -> f.SegmentKey:
        created = DAY + timedelta(minutes=restart)
        return f.SegmentKey(submission=f"s{self.record.attempt}", restart=restart, created_at=created)

    def apply(self, *inputs: AnyInput) -> Delivery:
        """`api` applies these and says so."""
        before = self.record
        done = advance(before, inputs, DAY)
        self.record = done.record
        wire = encode_event(done.record, done.event or "stage", DAY, before=before)
        return self.world.delivery(wire.subject, wire.body)
