"""Jobs as the api would keep them, told in facts: every record is made by the one function that may make it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from shared.contracts.events import decode_event, encode_event
from shared.contracts.facts import decode_fact
from shared.contracts.ids import new_id
from shared.contracts.spec import JobSpec
from shared.lifecycle import facts as f
from shared.lifecycle.advance import advance, create, reset
from shared.lifecycle.inputs import AnyInput, Pause, Reset, Resume, Retry, Stop
from shared.lifecycle.record import JobRecord
from shared.runtime.clock import SystemClock
from shared.runtime.messages import Delivery

TENANT = "acme"
_CLOCK = SystemClock()


class Job:
    """One job: its record, and the events that were made of it."""

    def __init__(
        self,
        *command: str,
        tenant: str = TENANT,
        env: dict[str, str] | None = None,
        kind: Literal["batch", "workstation"] = "batch",
        **spec: Any,
    ) -> None:
        self.spec = JobSpec(command=command or ("true",), env=env or {}, **spec)
        self.record: JobRecord = create(
            id=new_id("j", _CLOCK.now()),
            tenant=tenant,
            user="rin",
            name="job",
            spec_digest=self.spec.digest(),
            resources=self.spec.resources(),
            kind=kind,
            signals=self.spec.signals(),
            has_outputs=False,
            now=_CLOCK.now(),
        )
        self.events: list[bytes] = []
        self._n = 0

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def directory(self) -> str:
        """Where the current attempt's inputs are staged, relative to the backend's root."""
        return f"work/{self.record.tenant}/{self.id}/a{self.record.attempt}/e1"

    def apply(self, *inputs: AnyInput) -> Delivery | None:
        """The next version of the record, and the delivery of its event where it changed."""
        done = advance(self.record, inputs, _CLOCK.now())
        self.record = done.record
        if done.event is None:
            return None
        self.events.append(encode_event(done.record, done.event, _CLOCK.now()).body)
        return self.again()

    def again(self, number: int = -1) -> Delivery:
        """Another delivery of an event: of the newest where none is named."""
        body = self.events[number]
        event = decode_event(body)
        return Delivery(f"jobs.v1.{event.job.tenant}.{event.type}", body, {}, 1, 1)

    def staged(self, cluster: str | None = None) -> Delivery:
        """Admitted (to this cluster), valid, staged in: from here on a launch is owed."""
        self.apply(f.Admitted(**self.head("gatekeeper"), admission=1, cluster=cluster))
        event = self.apply(
            f.InputValid(**self.head("stager")),
            f.Staged(**self.head("stager"), directory=self.directory, nothing_to_copy=True),
        )
        assert event is not None
        return event

    def stop(self, **how: Any) -> Delivery:
        """Somebody stops it."""
        event = self.apply(Stop(actor="rin", at=_CLOCK.now(), **how))
        assert event is not None
        return event

    def pause(self) -> Delivery:
        """Somebody pauses it."""
        event = self.apply(Pause(actor="rin", at=_CLOCK.now()))
        assert event is not None
        return event

    def resume(self) -> None:
        """Somebody resumes it: the next attempt waits at the gates."""
        self.apply(Resume(actor="rin", at=_CLOCK.now()))

    def restored(self, record: JobRecord, epoch: int) -> Delivery:
        """The database was taken back to this record of it; the api says so in a new epoch."""
        self.record = reset(record, Reset(epoch=epoch)).record
        self.events.append(encode_event(self.record, "reset", _CLOCK.now()).body)
        return self.again()

    def retry(self) -> None:
        """Somebody retries it: the next attempt is admitted and staged."""
        self.apply(Retry(actor="rin", at=_CLOCK.now()))

    def exited(self, submission: str, *, code: int | None = 0, signal: int | None = None) -> Delivery:
        """The watcher's word for its end."""
        at = _CLOCK.now()
        event = self.apply(
            f.Exited(
                **self.head("watcher"),
                segment=f.SegmentKey(submission=submission, created_at=at),
                code=code,
                signal=signal,
                started_at=at,
                ended_at=at,
                stop_recorded=False,
                raw_state="exited",
            )
        )
        assert event is not None
        return event

    def lost(self) -> Delivery:
        """The watcher's word for a job that nobody saw end."""
        event = self.apply(f.Lost(**self.head("watcher")))
        assert event is not None
        return event

    def hear(self, rows: Sequence[Any]) -> list[f.AnyFact]:
        """Apply this job's facts among rows of an outbox, in their order; all that were there."""
        told = [decode_fact(row["subject"], row["body"]) for row in rows if row["key"] == self.id]
        if told:
            self.apply(*told)
        return told

    def head(self, service: str, at: datetime | None = None) -> dict[str, Any]:
        """The head of a fact about the current attempt."""
        self._n += 1
        return {
            "job": self.id,
            "tenant": self.record.tenant,
            "attempt": self.record.attempt,
            "version": f.Version(epoch=self.record.epoch, n=self._n),
            "at": at or _CLOCK.now(),
            "source": f"{service}/test",
        }
