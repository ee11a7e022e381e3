"""The one list of states, the five stages, and what each state holds."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a job is. The server keeps it; every interface shows this word and no other."""

    QUEUED = "QUEUED"
    """A gate holds it: nothing has been handed to any backend. Set at submit, resume and retry; left by an admission,
    a stop, a pause, or a step before it that failed. Holds nothing."""

    SUBMITTED = "SUBMITTED"
    """Let through: inputs are being validated and staged, or the backend is being asked. Set by an admission; left when
    the backend accepts, or when the attempt is sealed. GPUs are reserved, the slot is taken."""

    PENDING = "PENDING"
    """The backend has it and has not started it; also after the backend requeued it. GPUs are reserved."""

    RUNNING = "RUNNING"
    """The command is up, or has ended and its outputs are being copied back. Holds its GPUs until they are freed."""

    PAUSED = "PAUSED"
    """Stopped at the user's wish, to be resumed. Set once the attempt is sealed, at once from QUEUED. Holds nothing."""

    SUCCEEDED = "SUCCEEDED"
    """The command exited 0, was seen to, and its outputs are back. Final."""

    FAILED = "FAILED"
    """A stage failed, which one is named, and nothing follows by itself. Left only by retry or a recopy."""

    STOPPED = "STOPPED"
    """A person stopped it, or its pipeline will not reach it. Left only by retry."""


@dataclass(frozen=True, slots=True)
class StateRow:
    """What a job holds while in a state. `gpus` is `no`, `reserved` or `held`."""

    means: str
    gpus: str
    occupies_slot: bool
    counts_gpu_time: bool
    terminal: bool


STATES: Final[dict[State, StateRow]] = {
    State.QUEUED: StateRow("a gate holds it: nothing has been handed to any backend", "no", False, False, False),
    State.SUBMITTED: StateRow(
        "let through: inputs are being validated and staged, or the backend is being asked",
        "reserved",
        True,
        False,
        False,
    ),
    State.PENDING: StateRow("the backend has it and has not started it", "reserved", True, False, False),
    State.RUNNING: StateRow(
        "the command is up and holds its GPUs; then its outputs are copied back", "held", True, True, False
    ),
    State.PAUSED: StateRow("stopped at the user's wish, to be resumed", "no", False, False, False),
    State.SUCCEEDED: StateRow("the command exited 0, was seen to, and its outputs are back", "no", False, False, True),
    State.FAILED: StateRow(
        "a stage failed, which one is named, and nothing follows by itself", "no", False, False, True
    ),
    State.STOPPED: StateRow("a person stopped it, or its pipeline will not reach it", "no", False, False, True),
}

TERMINAL: Final = frozenset(state for state, row in STATES.items() if row.terminal)
ACTIVE: Final = frozenset({State.SUBMITTED, State.PENDING, State.RUNNING})
"""States in which an attempt is in other services' hands, so that only sealing it can end it."""


class StageName(StrEnum):
    """The five stages of an attempt, in order."""

    QUEUED = "queued"
    VALIDATING_INPUT = "validating_input"
    STARTING_CLUSTER = "starting_cluster"
    RUNNING_JOB = "running_job"
    STOPPING_CLUSTER = "stopping_cluster"


@dataclass(frozen=True, slots=True)
class StageRow:
    """What a stage waits on and when it has passed."""

    states: tuple[State, ...]
    waits_on: str
    passes_when: str


STAGES: Final[dict[StageName, StageRow]] = {
    StageName.QUEUED: StageRow((State.QUEUED,), "the named gate", "the gatekeeper admits it"),
    StageName.VALIDATING_INPUT: StageRow((State.SUBMITTED,), "the stager", "every input and the command check out"),
    StageName.STARTING_CLUSTER: StageRow(
        (State.SUBMITTED, State.PENDING), "staging in, the launcher, then the backend", "the backend shows it running"
    ),
    StageName.RUNNING_JOB: StageRow(
        (State.RUNNING,), "the command", "it exits 0 by itself; stopped by us, it is skipped"
    ),
    StageName.STOPPING_CLUSTER: StageRow(
        (State.RUNNING,), "copy-back, then release", "outputs are verified and the cluster is released"
    ),
}


class StageStatus(StrEnum):
    WAITING = "waiting"
    ACTIVE = "active"
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Desired(StrEnum):
    """What people want of the attempt. Precedence where several ask: stop, pause, run."""

    RUN = "run"
    PAUSED = "paused"
    STOPPED = "stopped"


class Phase(StrEnum):
    """A word beside the state: the workstation's, or the backend's own suspension."""

    ACTIVE = "active"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    SUSPENDED_BY_BACKEND = "suspended_by_backend"
