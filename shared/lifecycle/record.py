"""The job record that `api` keeps: decisions, the merged evidence, and what is derived from the two.

View fields (position, stale, actions, running gpu_seconds, …) are not in here: they are computed on read.
"""

from typing import Literal

from pydantic import AwareDatetime, Field

from shared.lifecycle.facts import Fact, Finding, Frozen, Gate, SegmentKey, Version
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import Desired, Phase, StageName, StageStatus, State

Signal = Literal["TERM", "INT", "HUP", "USR1", "USR2"]
"""Signals that a command may be sent to save its state, or to be warned."""
Origin = Literal["submit", "resume", "retry", "automatic"]
"""What began an attempt; `automatic`: a retry by the deployment's budgets."""


class Resources(Frozen):
    """What a job asks of a cluster. `gpus` is the total over all nodes."""

    coretype: str = "local"
    region: str | None = None
    gpus: int = 0
    nodes: int = 1
    time_limit_seconds: int | None = None


class PipelineRef(Frozen):
    """The job's place in its pipeline: step `step` is the `index`-th, and `after` is the job of the one before it (none
    of the first). `upstream_done` opens the `upstream` gate."""

    id: str
    step: str
    index: int
    after: str | None = None
    upstream_done: bool = False


class Signals(Frozen):
    """How the command is asked to end, and to save its state before a pause: a signal, then this many seconds until it
    is killed. None: the deployment's."""

    stop_grace_seconds: int | None = None
    checkpoint_signal: Signal = "TERM"
    checkpoint_grace_seconds: int | None = None


class Workstation(Frozen):
    """What a workstation has beside a batch job. Idle for `idle_suspend_seconds` it is paused, at `suspends_at`, unless
    its user has put that off until `snoozed_until`; None: never. `keeps_prefix`: its command expects the whole path of
    a request, with the prefix under which the front door shows it."""

    keeps_prefix: bool = False
    idle_suspend_seconds: int | None = None
    snoozed_until: AwareDatetime | None = None
    idle_since: AwareDatetime | None = None
    suspends_at: AwareDatetime | None = None


class HoldMark(Frozen):
    """A hold that a user or an admin put on a waiting job."""

    actor: str
    reason: str
    by_admin: bool
    at: AwareDatetime


class Wish(Frozen):
    """Who asked for a stop or a pause, when, and how. `exit_known`: the command's end was known before it was asked,
    so that this wish cannot have caused it. What an admin paused, only an admin resumes."""

    actor: str
    at: AwareDatetime
    force: bool = False
    grace_seconds: int | None = None
    by_policy: bool = False
    by_admin: bool = False
    reason: str | None = None
    exit_known: bool = False


class Stage(Frozen):
    name: StageName
    status: StageStatus = StageStatus.WAITING
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    waiting_on: str | None = None


class Segment(Frozen):
    """One period of holding GPUs. `gpu_milliseconds` is wall time x GPUs less suspended time, once it has ended."""

    key: SegmentKey
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    ended: Literal["exited", "requeued", "lost"] | None = None
    estimated: bool = False
    suspended_since: AwareDatetime | None = None
    suspended_ms: int = 0
    gpus: int = 0
    gpu_milliseconds: int | None = None
    billable: bool = True


class Folded(Frozen):
    """Segments whose evidence is no longer kept, as sums, so that a record stays small whatever happened to its job.

    `until` is the newest of them: facts about it or an older one change nothing any more. None: the whole attempt.
    `last_sighting` is the newest version of what was told of them, which disproves an older `lost`. `up_ms` is their
    time without its suspensions, whatever GPUs they held.
    """

    attempts: int = 0
    segments: int = 0
    started_at: AwareDatetime | None = None
    up_ms: int = 0
    gpu_milliseconds: int = 0
    not_billable_gpu_milliseconds: int = 0
    estimated: bool = False
    until: SegmentKey | None = None
    last_sighting: Version | None = None


class Exit(Frozen):
    code: int | None = None
    signal: int | None = None
    self_reported: bool = False


class Copied(Frozen):
    """What came back: counts, and the manifest's name in the stager's slice."""

    files: int
    size_bytes: int
    manifest: str | None = None


class Attempt(Frozen):
    """One go at the run, admitted to `cluster`. `evidence` holds the newest fact per (segment, kind); the oldest
    segments may be `folded`. `infrastructure_before` is what earlier attempts had used of the infrastructure's
    budget, `up_before_ms` how long a workstation was up in them. `began_after` is what had become of the job since the
    attempt before ended, where that was something else: paused, it was stopped. `stages` are kept once it is sealed:
    until then they are the record's."""

    number: int
    origin: Origin = "submit"
    began_after: str | None = None
    queued_at: AwareDatetime
    cooldown_until: AwareDatetime | None = None
    admission: int | None = None
    admitted_at: AwareDatetime | None = None
    cluster: str | None = None
    evidence: tuple[Fact, ...] = ()
    segments: tuple[Segment, ...] = ()
    folded: Folded | None = None
    infrastructure_before: int = 0
    up_before_ms: int = 0
    sealed: bool = False
    stages: tuple[Stage, ...] = ()
    end_reason: EndReason | None = None
    exit: Exit = Exit()
    outputs: Copied | None = None
    message: str | None = None
    finished_at: AwareDatetime | None = None


class Retries(Frozen):
    """Automatic retries: the job's own budget and the infrastructure's, on which the backend's requeues draw too. Those
    by hand have a bound of their own. `count`: all retries, whoever asked."""

    count: int = 0
    by_hand: int = Field(default=0, ge=0)
    by_hand_budget: int = Field(default=20, ge=0)
    used: int = 0
    budget: int = Field(default=0, ge=0)
    infrastructure_used: int = 0
    infrastructure_budget: int = Field(default=0, ge=0)
    cooldown_until: AwareDatetime | None = None


class RecopyMark(Frozen):
    """An open recopy: the state stays FAILED until its outputs are verified."""

    number: int
    actor: str
    at: AwareDatetime


class Backend(Frozen):
    """Where the current attempt is, in the backend's own words."""

    name: str | None = None
    cluster: str | None = None
    ref: str | None = None
    raw_state: str | None = None
    raw_reason: str | None = None


class JobRecord(Frozen):
    """The record of one job. `(epoch, seq)` orders its versions; only `advance` makes the next.

    `attempts` ends with the current one; of those before it the oldest are only counted, in `earlier`.
    """

    id: str
    tenant: str
    project: str = "default"
    user: str
    name: str
    kind: Literal["batch", "workstation"] = "batch"
    pipeline: PipelineRef | None = None
    array: str | None = None
    spec_digest: str
    resources: Resources = Resources()
    priority: int = 0
    has_outputs: bool = False
    signals: Signals = Signals()
    workstation: Workstation | None = None
    state: State = State.QUEUED
    phase: Phase | None = None
    desired_state: Desired = Desired.RUN
    wish: Wish | None = None
    hold: HoldMark | None = None
    epoch: int = 1
    seq: int = 1
    stages: tuple[Stage, ...] = ()
    gate: Gate | None = None
    closed_gates: tuple[Gate, ...] = ()
    gate_version: Version | None = None
    admission_refused: int | None = None
    attempt: int = 1
    attempts: tuple[Attempt, ...] = Field(min_length=1)
    earlier: Folded | None = None
    retries: Retries = Retries()
    backend: Backend = Backend()
    exit: Exit = Exit()
    end_reason: EndReason | None = None
    failed_stage: StageName | None = None
    message: str | None = None
    hint: str | None = None
    submit_warnings: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    recopy: RecopyMark | None = None
    recopies: int = 0
    corrects: State | None = None
    deleted: bool = False
    gpus_freed: bool = False
    submitted_at: AwareDatetime
    started_at: AwareDatetime | None = None
    command_ended_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None

    @property
    def current(self) -> Attempt:
        """The attempt that this record is about (attempts of older numbers come before it)."""
        return self.attempts[-1]
