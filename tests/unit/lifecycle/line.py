"""A pipeline as its steps' records: what is asked of it as one, what becomes of its steps, and what follows from that.

As in `api` every change is followed at once by what it means for the steps after it.
"""

from dataclasses import dataclass
from typing import Any

from shared.lifecycle import inputs as i
from shared.lifecycle.outcome import Outcome
from shared.lifecycle.pipeline import PipelineCommand, ask_pipeline, follow_ups, word_of
from shared.lifecycle.record import JobRecord, PipelineRef
from shared.lifecycle.states import State
from tests.unit.lifecycle.jobs import Job, a_job, at

OBEYED: dict[str, Any] = {"code": None, "signal": 15, "stop_recorded": True}


@dataclass
class Line:
    """Steps a, b, c, … of one pipeline."""

    jobs: list[Job]
    last: Outcome | None = None

    @classmethod
    def of(cls, steps: int, **given: Any) -> "Line":
        """A pipeline just submitted."""
        made = []
        for index in range(steps):
            ref = PipelineRef(id="p1", step="abcdefgh"[index], index=index, upstream_done=index == 0)
            job = a_job(pipeline=ref, outputs=False, **given)
            job.record = job.record.model_copy(update={"id": f"{job.record.id[:-1]}{index}"})
            made.append(job)
        return cls(made)

    @property
    def records(self) -> list[JobRecord]:
        return [job.record for job in self.jobs]

    @property
    def states(self) -> list[State]:
        return [job.state for job in self.jobs]

    @property
    def word(self) -> str:
        return word_of(self.records)

    @property
    def why(self) -> str | None:
        """Why the last command for the pipeline asked nothing."""
        return None if self.last is None else self.last.why

    def ask(self, kind: type[PipelineCommand], /, **fields: Any) -> "Line":
        """A person asks for something of the pipeline."""
        command = kind(**({"actor": "rin", "at": at(50)} | fields))
        asked = ask_pipeline(self.records, command, at(50))
        self.last = asked.outcome
        for step, one in asked.steps:
            self._job(step).take(one)
        return self.and_what_follows()

    def and_what_follows(self) -> "Line":
        for step, command in list(follow_ups(self.records, at(50))):
            self._job(step).take(command)
        return self

    def _job(self, step: JobRecord) -> Job:
        return next(job for job in self.jobs if job.record.id == step.id)

    def admit(self, step: int) -> "Line":
        """The gatekeeper lets it through, whether or not it is its turn."""
        job = self.jobs[step]
        job.admitted(job.last_version + 1)
        return self.and_what_follows()

    def start(self, step: int) -> "Line":
        """It runs, once it was let through."""
        if self.jobs[step].state is State.SUBMITTED:
            self.jobs[step].staged().accepted().running()
        return self

    def runs(self, step: int) -> "Line":
        return self.admit(step).start(step)

    def ends(self, step: int, **end: Any) -> "Line":
        """Its command ends, and it is let go."""
        if self.jobs[step].state is State.RUNNING:
            self.jobs[step].exited(**end).released()
        return self.and_what_follows()

    def succeeds(self, step: int) -> "Line":
        return self.ends(step, code=0)

    def fails(self, step: int) -> "Line":
        return self.ends(step, code=3)

    def obeys(self, step: int) -> "Line":
        """It ends because it was asked to, or is given up before it began."""
        job = self.jobs[step]
        if job.state is State.SUBMITTED and job.record.desired_state != "run":
            job.copied_back("none", staged=False)
        elif job.record.desired_state != "run":
            return self.ends(step, **OBEYED)
        return self.and_what_follows()

    def by_itself(self, step: int, kind: type[i.CommandBase], /, **fields: Any) -> "Line":
        """A person asks for something of this step alone."""
        self.jobs[step].ask(kind, **fields)
        return self.and_what_follows()
