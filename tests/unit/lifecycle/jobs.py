"""Builders that read like speech: a job, what services tell about it, what people ask of it, and what became of it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance, create
from shared.lifecycle.outcome import Outcome
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import JobRecord, PipelineRef, Resources, Retries, Workstation
from shared.lifecycle.states import State

START = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
ID = "j01jdx3k8q7w5m2v9c4b6n1r0te"
FactT = TypeVar("FactT", bound=f.FactBase)


def at(seconds: float) -> datetime:
    """An instant, in seconds after the submit."""
    return START + timedelta(seconds=seconds)


def segment(restart: int = 0, *, submission: str = "s1", created: float = 3) -> f.SegmentKey:
    """A segment that the backend created `created` seconds after the submit."""
    return f.SegmentKey(submission=submission, restart=restart, created_at=at(created))


def a_job(
    *,
    gpus: int = 2,
    outputs: bool = True,
    retries: int = 0,
    infrastructure: int = 0,
    by_hand: int = 20,
    time_limit: int | None = None,
    workstation: Workstation | None = None,
    kind: Any = "batch",
    pipeline: PipelineRef | None = None,
    warnings: tuple[str, ...] = (),
) -> "Job":
    """A job just submitted."""
    return Job(
        create(
            id=ID,
            tenant="acme",
            user="rin",
            name="train",
            spec_digest="sha256:" + "0" * 64,
            resources=Resources(gpus=gpus, time_limit_seconds=time_limit),
            has_outputs=outputs,
            kind=kind,
            pipeline=pipeline,
            retries=Retries(budget=retries, infrastructure_budget=infrastructure, by_hand_budget=by_hand),
            workstation=workstation,
            warnings=warnings,
            now=START,
        )
    )


@dataclass
class Job:
    """A record, with what happened to it. Facts are told one by one unless `together` is used."""

    record: JobRecord
    now: float = 10
    events: list[str] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    last_version: int = 0

    def fact(self, kind: type[FactT], /, **fields: Any) -> FactT:
        """A fact about the current attempt, newer than every one before, unless the fields say otherwise."""
        self.last_version += 1
        said: dict[str, Any] = {
            "job": self.record.id,
            "tenant": self.record.tenant,
            "attempt": self.record.attempt,
            "version": f.Version(n=self.last_version),
            "at": at(self.now),
            "source": "test",
        }
        return kind(**(said | fields))

    def take(self, *inputs: i.AnyInput) -> "Job":
        """One batch of inputs."""
        self.now += 1
        done = advance(self.record, inputs, at(self.now))
        self.record = done.record
        self.outcomes += done.outcomes
        if done.event is not None:
            self.events.append(done.event)
        return self

    def tell(self, kind: type[FactT], /, **fields: Any) -> "Job":
        """A service tells a fact."""
        return self.take(self.fact(kind, **fields))  # type: ignore[arg-type]  # every fact but its base is an input

    def ask(self, kind: type[i.CommandBase], /, **fields: Any) -> "Job":
        """A person asks for something."""
        return self.take(kind(**({"actor": "rin", "at": at(self.now)} | fields)))  # type: ignore[arg-type]  # as above

    @property
    def last(self) -> Outcome:
        """What became of the last input."""
        return self.outcomes[-1]

    @property
    def why(self) -> str:
        """Why the last input changed nothing."""
        return self.last.why or ""

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def end(self) -> EndReason | None:
        return self.record.end_reason

    def admitted(self, admission: int = 1) -> "Job":
        return self.tell(f.Admitted, admission=admission)

    def staged(self) -> "Job":
        """Checked and staged in; with no outputs declared that is the stager's vote."""
        self.tell(f.InputValid)
        return self.tell(f.Staged, directory="a1/e1", nothing_to_copy=not self.record.has_outputs)

    def accepted(self, key: f.SegmentKey | None = None) -> "Job":
        return self.tell(f.Accepted, segment=key or segment(), backend="local", cluster="local", ref="r1")

    def running(self, key: f.SegmentKey | None = None, *, started: float = 4, **fields: Any) -> "Job":
        said: dict[str, Any] = {"started_at": at(started), "raw_state": "running"}
        return self.tell(f.SeenRunning, segment=key or segment(), **(said | fields))

    def started(self) -> "Job":
        """From submit to running."""
        return self.admitted().staged().accepted().running()

    def exited(self, code: int | None = 0, key: f.SegmentKey | None = None, **fields: Any) -> "Job":
        said = {"code": code, "started_at": at(4), "ended_at": at(9), "stop_recorded": False, "raw_state": "exited"}
        return self.tell(f.Exited, segment=key or segment(), **(said | fields))

    def requeued(self, key: f.SegmentKey | None = None, *, ended: float = 6, **fields: Any) -> "Job":
        said: dict[str, Any] = {"started_at": at(4), "ended_at": at(ended), "raw_reason": "preempted"}
        return self.tell(f.SegmentRequeued, segment=key or segment(), **(said | fields))

    def released(self, *, ran: bool = True) -> "Job":
        """The launcher frees the GPUs and votes."""
        return self.tell(f.GpusFreed).tell(f.LauncherSealed, ran=ran)

    def copied_back(self, outcome: str = "verified", *, staged: bool = True, **fields: Any) -> "Job":
        """The stager votes."""
        return self.tell(f.StagingSealed, staged=staged, outcome=outcome, **fields)

    def sealed(self, *, ran: bool = True, outcome: str = "verified") -> "Job":
        """Both votes."""
        return self.released(ran=ran).copied_back(outcome)


def a_job_that(state: State) -> Job:
    """A job that has come to `state` in the plainest way."""
    job = a_job()
    match state:
        case State.QUEUED:
            return job
        case State.SUBMITTED:
            return job.admitted()
        case State.PENDING:
            return job.admitted().staged().accepted()
        case State.RUNNING:
            return job.started()
        case State.PAUSED:
            return job.ask(i.Pause)
        case State.SUCCEEDED:
            return job.started().exited().sealed()
        case State.FAILED:
            return job.started().exited(3).sealed()
        case State.STOPPED:
            return job.ask(i.Stop)
