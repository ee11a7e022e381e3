"""Jobs and pipelines as the API shows them: the fields that clients of this version read. Unknown ones are kept and
ignored."""

from pydantic import AwareDatetime, BaseModel, ConfigDict

from shared.contracts.spec import JobSpec
from shared.lifecycle.actions import Action
from shared.lifecycle.facts import Finding, Gate
from shared.lifecycle.pipeline import PipelineWord
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.record import (
    Attempt,
    Backend,
    Exit,
    Folded,
    HoldMark,
    PipelineRef,
    Retries,
    Stage,
    Wish,
    Workstation,
)
from shared.lifecycle.states import TERMINAL, StageName, State


class GateView(Gate):
    """The first closed gate, with the job's place in the line."""

    position: int | None = None


class JobView(BaseModel):
    """A job as `GET /v1/jobs/{id}` returns it."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    tenant: str
    project: str
    user: str
    name: str
    kind: str = "batch"
    pipeline: PipelineRef | None = None
    workstation: Workstation | None = None
    state: State
    phase: str | None = None
    desired_state: str
    wish: Wish | None = None
    hold: HoldMark | None = None
    epoch: int
    seq: int
    stages: tuple[Stage, ...]
    gate: GateView | None = None
    closed_gates: tuple[Gate, ...] = ()
    attempt: int
    attempts: tuple[Attempt, ...]
    earlier: Folded | None = None
    retries: Retries = Retries()
    spec: JobSpec
    backend: Backend
    exit: Exit
    end_reason: EndReason | None = None
    failed_stage: StageName | None = None
    message: str | None = None
    hint: str | None = None
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    gpu_seconds: str = "0.000"
    actions: dict[str, Action] = {}
    submitted_at: AwareDatetime
    started_at: AwareDatetime | None = None
    command_ended_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in TERMINAL


class JobPage(BaseModel):
    """One page of a listing; `next_cursor` asks for the next, none at the end."""

    items: tuple[JobView, ...]
    next_cursor: str | None = None


class StepView(BaseModel):
    """A step of a pipeline: its job in short (`GET /v1/jobs/{job}` shows it whole), as it was shown last where that was
    deleted."""

    model_config = ConfigDict(frozen=True, extra="allow")

    job: str
    name: str
    index: int
    state: State
    desired_state: str
    waiting_on: str | None = None
    end_reason: EndReason | None = None
    failed_stage: StageName | None = None
    message: str | None = None
    hint: str | None = None
    warnings: tuple[str, ...] = ()
    started_at: AwareDatetime | None = None
    command_ended_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None
    deleted_at: AwareDatetime | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to it by itself."""
        return self.state in TERMINAL


class PipelineView(BaseModel):
    """A pipeline as `GET /v1/pipelines/{id}` returns it: its one word, and its steps in order. `message` says, once it
    has ended, why it did not succeed."""

    model_config = ConfigDict(frozen=True, extra="allow")

    id: str
    tenant: str
    project: str
    user: str
    name: str
    word: PipelineWord
    message: str | None = None
    steps: tuple[StepView, ...]
    actions: dict[str, Action] = {}
    submitted_at: AwareDatetime
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None


class PipelinePage(BaseModel):
    """One page of a listing; `next_cursor` asks for the next, none at the end."""

    items: tuple[PipelineView, ...]
    next_cursor: str | None = None
