"""The few fields of a job event that tell whether it can change anything here.

Most events of a job say that it moves on under the reservation it has. Reading one in full costs ten times a glance.
"""

from typing import NamedTuple

from shared.contracts.events import decode_event
from shared.lifecycle.facts import Frozen
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, State


class _Backend(Frozen):
    cluster: str | None = None


class _Attempt(Frozen):
    admission: int | None = None


class _Job(Frozen):
    id: str
    state: State
    epoch: int
    seq: int
    attempt: int
    deleted: bool = False
    gpus_freed: bool = False
    backend: _Backend = _Backend()
    attempts: tuple[_Attempt, ...]


class _Event(Frozen):
    job: _Job


class Glance(NamedTuple):
    """What an event is about, and the event itself to be read where that matters. `question` numbers its delivery."""

    job: str
    version: tuple[int, int]
    attempt: int
    admission: int
    cluster: str | None
    quiet: bool
    question: int
    body: bytes

    @classmethod
    def at(cls, body: bytes, question: int) -> "Glance":
        """`quiet`: the attempt holds all that it was given, which changes nothing if a reservation says the same."""
        job = _Event.model_validate_json(body).job
        return cls(
            job=job.id,
            version=(job.epoch, job.seq),
            attempt=job.attempt,
            admission=job.attempts[-1].admission or 0,
            cluster=job.backend.cluster,
            quiet=job.state in ACTIVE and not job.deleted and not job.gpus_freed,
            question=question,
            body=body,
        )

    def read(self) -> JobRecord:
        """The whole record."""
        return decode_event(self.body).job
