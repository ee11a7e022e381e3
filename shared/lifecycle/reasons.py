"""Why an attempt ended: one row per end reason, so that nobody re-derives state, stage, retry or billing."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from shared.lifecycle.states import StageName, State


class RetryClass(StrEnum):
    """Which budget an automatic retry may draw on."""

    NONE = "none"
    USER = "user"
    INFRASTRUCTURE = "infrastructure"


class EndReason(StrEnum):
    SUCCEEDED = "succeeded"
    EXIT_NONZERO = "exit_nonzero"
    KILLED_BY_SIGNAL = "killed_by_signal"
    COMMAND_NOT_FOUND = "command_not_found"
    COMMAND_NOT_EXECUTABLE = "command_not_executable"
    OUT_OF_MEMORY = "out_of_memory"
    TIME_LIMIT = "time_limit"
    INPUT_INVALID = "input_invalid"
    INPUT_CHANGED = "input_changed"
    STAGING_FAILED = "staging_failed"
    LAUNCH_REFUSED = "launch_refused"
    CONFIGURATION = "configuration"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"
    LOST = "lost"
    OUTPUTS_MISSING = "outputs_missing"
    COPY_BACK_FAILED = "copy_back_failed"
    EXPECTATION_FAILED = "expectation_failed"
    LIFETIME_OVER = "lifetime_over"
    PAUSED_BY_USER = "paused_by_user"
    PAUSED_BY_POLICY = "paused_by_policy"
    PAUSED_BY_ADMIN = "paused_by_admin"
    STOPPED_BY_USER = "stopped_by_user"
    STOPPED_BY_POLICY = "stopped_by_policy"
    STOPPED_AT_BACKEND = "stopped_at_backend"
    UPSTREAM_FAILED = "upstream_failed"


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """What an end reason says. `stage` is the stage that failed, none where nothing failed. `sentence` may name
    `{code}` and `{signal}`, `hint` `{job}` and says what to do next. Details follow the sentence after a colon."""

    state: State
    stage: StageName | None
    retry: RetryClass
    billable: bool
    sentence: str
    hint: str | None = None


_F, _S = State.FAILED, State.STOPPED
_RUN, _COPY = StageName.RUNNING_JOB, StageName.STOPPING_CLUSTER
_START, _CHECK = StageName.STARTING_CLUSTER, StageName.VALIDATING_INPUT
_NO, _USER, _INFRA = RetryClass.NONE, RetryClass.USER, RetryClass.INFRASTRUCTURE

REASONS: Final[dict[EndReason, ReasonRow]] = {
    EndReason.SUCCEEDED: ReasonRow(State.SUCCEEDED, None, _NO, True, "exited 0 and its outputs are back"),
    EndReason.EXIT_NONZERO: ReasonRow(
        _F, _RUN, _USER, True, "the command exited with code {code}", "read its last lines: tidegate logs {job}"
    ),
    EndReason.KILLED_BY_SIGNAL: ReasonRow(
        _F,
        _RUN,
        _USER,
        True,
        "the command was killed by signal {signal}",
        "it was ended from outside or by a fault of its own: read tidegate logs {job}",
    ),
    EndReason.COMMAND_NOT_FOUND: ReasonRow(
        _F,
        _RUN,
        _NO,
        True,
        "the program was not found",
        "give a program that is on the cluster's PATH, or one in the submitted directory as ./NAME",
    ),
    EndReason.COMMAND_NOT_EXECUTABLE: ReasonRow(
        _F, _RUN, _NO, True, "the program cannot be executed", "set its execute bit (chmod +x) and submit again"
    ),
    EndReason.OUT_OF_MEMORY: ReasonRow(
        _F, _RUN, _USER, True, "the command ran out of memory", "ask for more memory, or use less"
    ),
    EndReason.TIME_LIMIT: ReasonRow(
        _F,
        _RUN,
        _NO,
        True,
        "the command reached its time limit",
        "submit it again with a longer --time-limit, or less to do",
    ),
    EndReason.INPUT_INVALID: ReasonRow(
        _F, _CHECK, _NO, False, "the input was refused", "correct what is named and submit again; no hardware was used"
    ),
    EndReason.INPUT_CHANGED: ReasonRow(
        _F, _CHECK, _NO, False, "an input changed after the submit", "submit again to use the new content"
    ),
    EndReason.STAGING_FAILED: ReasonRow(
        _F, _START, _INFRA, False, "the inputs could not be staged in", "tidegate retry {job}; no hardware was used"
    ),
    EndReason.LAUNCH_REFUSED: ReasonRow(
        _F, _START, _NO, False, "the backend refused the job", "correct the request and submit again"
    ),
    EndReason.CONFIGURATION: ReasonRow(
        _F, _START, _NO, False, "the backend cannot start it as configured", "ask the operator of the cluster"
    ),
    EndReason.NODE_LOST: ReasonRow(
        _F, _RUN, _INFRA, False, "the machine that ran it went away", "tidegate retry {job}"
    ),
    EndReason.PREEMPTED: ReasonRow(_F, _RUN, _INFRA, False, "the backend preempted it", "tidegate retry {job}"),
    EndReason.LOST: ReasonRow(
        _F,
        _RUN,
        _INFRA,
        False,
        "it is gone from the backend and nobody saw how it ended",
        "it may have finished: look at tidegate logs {job} and tidegate outputs {job} before you retry it",
    ),
    EndReason.OUTPUTS_MISSING: ReasonRow(
        _F,
        _COPY,
        _NO,
        True,
        "exited 0, but these declared outputs are not there",
        "write them into the job's working directory, or correct --out",
    ),
    EndReason.COPY_BACK_FAILED: ReasonRow(
        _F,
        _COPY,
        _NO,
        True,
        "exited 0, but its outputs could not be copied back",
        "what came back is in tidegate outputs {job}; ask the operator for the rest, or: tidegate retry {job}",
    ),
    EndReason.EXPECTATION_FAILED: ReasonRow(
        _F, _COPY, _NO, True, "exited 0, but an expectation does not hold", "read tidegate logs {job}"
    ),
    EndReason.LIFETIME_OVER: ReasonRow(
        _S, None, _NO, True, "the workstation was up for its maximum lifetime", "start another with a longer one"
    ),
    EndReason.PAUSED_BY_USER: ReasonRow(State.PAUSED, None, _NO, True, "paused", "go on with: tidegate resume {job}"),
    EndReason.PAUSED_BY_POLICY: ReasonRow(State.PAUSED, None, _NO, True, "paused", "go on with: tidegate resume {job}"),
    EndReason.PAUSED_BY_ADMIN: ReasonRow(
        State.PAUSED,
        None,
        _NO,
        True,
        "paused until an admin resumes it",
        "only an admin can resume it: ask the operator",
    ),
    EndReason.STOPPED_BY_USER: ReasonRow(_S, None, _NO, True, "stopped", "start it again with: tidegate retry {job}"),
    EndReason.STOPPED_BY_POLICY: ReasonRow(_S, None, _NO, True, "stopped", "start it again with: tidegate retry {job}"),
    EndReason.STOPPED_AT_BACKEND: ReasonRow(
        _S,
        None,
        _NO,
        True,
        "stopped at the backend, not through Tidegate",
        "start it again with: tidegate retry {job}",
    ),
    EndReason.UPSTREAM_FAILED: ReasonRow(
        _S, None, _NO, False, "a step before it did not succeed", "retry the pipeline once what failed is put right"
    ),
}
