"""What one request submits: a job, a batch of jobs, or the steps of a pipeline. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath

from services.api.pipelines import NewPipeline
from shared.contracts.given import LONGEST_NAME
from shared.contracts.ids import new_id
from shared.contracts.spec import PipelineRequest, SubmitRequest
from shared.lifecycle.record import PipelineRef, Workstation


@dataclass(frozen=True, slots=True)
class Submission:
    """The jobs to make, in their order; with `pipeline` they are its steps."""

    requests: Sequence[SubmitRequest]
    pipeline: PipelineRequest | None = None
    workstation: Workstation | None = None
    """The one job is a workstation."""

    @classmethod
    def of_steps(cls, pipeline: PipelineRequest) -> "Submission":
        """The steps, each with a name of its own and with the pipeline's project where it names none."""
        named = zip(pipeline.steps, _step_names(pipeline.steps), strict=True)
        steps = [step.model_copy(update={"name": name} | _project(step, pipeline.project)) for step, name in named]
        return cls(steps, pipeline)

    @property
    def snapshots(self) -> list[str]:
        """The digests that the jobs name."""
        return sorted({request.spec.snapshot for request in self.requests if request.spec.snapshot is not None})

    def job(self, index: int) -> str:
        """How a sentence about a job begins: `jobs[2]: `, or nothing where there is only one."""
        where = self._where(index)
        return f"{where}: " if where else ""

    def field(self, index: int) -> str:
        """How the name of a job's field begins: `steps[0].`, or nothing where there is only one job."""
        where = self._where(index)
        return f"{where}." if where else ""

    def _where(self, index: int) -> str:
        if self.pipeline is not None:
            return f"steps[{index}]"
        return f"jobs[{index}]" if len(self.requests) > 1 else ""

    def name(self, index: int) -> str:
        """The job's name: the one given, else its program's."""
        request = self.requests[index]
        return request.name or _named_after(request.spec.command[0])

    def new_pipeline(self, user: str, now: datetime) -> NewPipeline | None:
        """The pipeline that these are the steps of."""
        if self.pipeline is None:
            return None
        first = self.requests[0]
        return NewPipeline(new_id("p", now), first.project, user, self.pipeline.name or self.name(0), now)

    def place(self, index: int, pipeline: NewPipeline | None, jobs: Sequence[str]) -> PipelineRef | None:
        """The job's place in the pipeline; the first step waits for none."""
        if pipeline is None:
            return None
        after = jobs[index - 1] if index > 0 else None
        return PipelineRef(id=pipeline.id, step=self.name(index), index=index, after=after, upstream_done=after is None)


def _project(step: SubmitRequest, of_pipeline: str | None) -> dict[str, str]:
    return {} if of_pipeline is None or "project" in step.model_fields_set else {"project": of_pipeline}


def _step_names(steps: Sequence[SubmitRequest]) -> list[str]:
    """Those given; a step without one is named after its program, and numbered where that name is taken."""
    taken = {step.name for step in steps if step.name is not None}
    names = []
    for step in steps:
        name = wanted = step.name or _named_after(step.spec.command[0])
        number = 1
        while step.name is None and name in taken:
            number += 1
            name = f"{wanted[: LONGEST_NAME - 4]}-{number}"
        taken.add(name)
        names.append(name)
    return names


def _named_after(program: str) -> str:
    """The name of a job that was given none."""
    name = "".join(one if one.isprintable() else "?" for one in PurePosixPath(program).name[:LONGEST_NAME])
    return name if name.strip() else "job"
