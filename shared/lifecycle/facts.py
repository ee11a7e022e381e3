"""What services report: small frozen models, one per kind of fact.

A fact is evidence, versioned by its sender with `(epoch, n)`: per (attempt, segment, kind) the higher version wins.
Times are aware. Texts and lists are cut to what a record can hold, so that a fact is never refused for being talkative.
"""

from typing import Annotated, Final, Literal, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from shared.lifecycle.reasons import EndReason

MAX_TEXT: Final = 300
MAX_ITEMS: Final = 10
ItemT = TypeVar("ItemT")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _first(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    return items[:MAX_ITEMS]


Text = Annotated[str, AfterValidator(_cut)]
"""A sentence, or a word of a backend, at most MAX_TEXT characters."""
Texts = Annotated[tuple[Text, ...], AfterValidator(_first)]


class Frozen(BaseModel):
    """A value: immutable, unknown fields ignored so that versions n and n-1 run side by side."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Version(Frozen):
    """The sender's version of a fact: `epoch` rises on restore, `n` with every fact of that service."""

    epoch: int = 1
    n: int

    def __lt__(self, other: "Version") -> bool:
        return (self.epoch, self.n) < (other.epoch, other.n)


class SegmentKey(Frozen):
    """One period of holding GPUs inside an attempt, ordered by the backend's creation time."""

    submission: str
    restart: int = 0
    created_at: AwareDatetime


class Gate(Frozen):
    """A closed gate: the sentence with its numbers, and who or what opens it."""

    name: str
    reason: Text
    have: int | None = None
    need: int | None = None
    scope: Text
    lifted_by: Text
    opens_at: AwareDatetime | None = None


class Finding(Frozen):
    """One thing wrong with the input: a code, the place, what was given and is right, a near match if there is one."""

    code: str
    place: Text
    message: Text
    near: Text | None = None


class FactBase(Frozen):
    """`source` says where it was seen: a service's replica, or a cluster."""

    job: str
    tenant: str
    attempt: int
    version: Version
    at: AwareDatetime
    source: str


class Admitted(FactBase):
    """The gatekeeper booked a reservation `(job, attempt, admission)` and lets the job through to `cluster`."""

    kind: Literal["admitted"] = "admitted"
    admission: int
    cluster: str | None = None


class Held(FactBase):
    """The closed gates, the first one first. Sent only when the first gate or its reason's class changes."""

    kind: Literal["held"] = "held"
    gates: Annotated[tuple[Gate, ...], AfterValidator(_first)] = Field(min_length=1)


class PolicyStop(FactBase):
    """A policy asks for a stop; `policy` names it as the actor."""

    kind: Literal["policy_stop"] = "policy_stop"
    policy: Text
    reason: Text


class PolicyPause(FactBase):
    """A policy asks for a pause."""

    kind: Literal["policy_pause"] = "policy_pause"
    policy: Text
    reason: Text


class InputValid(FactBase):
    """Every input and the command check out; `warnings` say what could not be checked."""

    kind: Literal["input_valid"] = "input_valid"
    warnings: Texts = ()


class InputInvalid(FactBase):
    """Confirmed bad: all findings at once."""

    kind: Literal["input_invalid"] = "input_invalid"
    findings: Annotated[tuple[Finding, ...], AfterValidator(_first)] = Field(min_length=1)


class Staged(FactBase):
    """Inputs lie in `directory` (relative to the cluster's root). `nothing_to_copy` makes this the stager's vote."""

    kind: Literal["staged"] = "staged"
    directory: str
    nothing_to_copy: bool


class StagingFailed(FactBase):
    """The inputs could not be staged in, for good."""

    kind: Literal["staging_failed"] = "staging_failed"
    message: Text
    reason: EndReason = EndReason.STAGING_FAILED


class StagingSealed(FactBase):
    """The stager's vote: it will write nothing more for this attempt. `staged`: whether inputs had been staged;
    `because` names the fact, told with it, that says why not: one may overtake the other."""

    kind: Literal["staging_sealed"] = "staging_sealed"
    staged: bool
    because: Literal["input_invalid", "staging_failed"] | None = None
    outcome: Literal["none", "verified", "missing", "failed", "expectation_failed"]
    files: int = 0
    size_bytes: int = 0
    manifest: str | None = None
    missing: Texts = ()
    message: Text | None = None


class Recopied(FactBase):
    """The end of a recopy that `outputs retry` opened."""

    kind: Literal["recopied"] = "recopied"
    recopy: int
    outcome: Literal["verified", "missing", "failed"]
    files: int = 0
    size_bytes: int = 0
    manifest: str | None = None
    message: Text | None = None


class Accepted(FactBase):
    """The backend took the submission."""

    kind: Literal["accepted"] = "accepted"
    segment: SegmentKey
    backend: str
    cluster: str
    ref: str


class LaunchRefused(FactBase):
    """The backend will never take it."""

    kind: Literal["launch_refused"] = "launch_refused"
    reason: EndReason = EndReason.LAUNCH_REFUSED
    message: Text


class LauncherSealed(FactBase):
    """The launcher's vote: nothing of this attempt runs or can start any more. `ran`: whether a claim was found.
    `because` names the fact, told with it, that says why nothing did: one may overtake the other."""

    kind: Literal["launcher_sealed"] = "launcher_sealed"
    ran: bool
    because: Literal["launch_refused"] | None = None


class GpusFreed(FactBase):
    """No further segment can come: the GPUs' reservation ends."""

    kind: Literal["gpus_freed"] = "gpus_freed"


class SeenPending(FactBase):
    """The backend has it and has not started it, in its own words."""

    kind: Literal["seen_pending"] = "seen_pending"
    segment: SegmentKey
    raw_state: Text
    raw_reason: Text | None = None


class SeenRunning(FactBase):
    """The command is up. `suspended_since` is set while the backend suspends it; `suspended_ms` sums earlier ones."""

    kind: Literal["seen_running"] = "seen_running"
    segment: SegmentKey
    started_at: AwareDatetime
    raw_state: Text
    suspended_since: AwareDatetime | None = None
    suspended_ms: int = 0


class SeenIdle(FactBase):
    """A workstation's activity as `probes` show it: idle since when (None: in use), and when that suspends it."""

    kind: Literal["seen_idle"] = "seen_idle"
    idle_since: AwareDatetime | None = None
    suspends_at: AwareDatetime | None = None
    probes: Texts = ()


class SegmentRequeued(FactBase):
    """The segment ended and the backend will start another under the same attempt."""

    kind: Literal["segment_requeued"] = "segment_requeued"
    segment: SegmentKey
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime
    suspended_ms: int = 0
    raw_reason: Text
    estimated: bool = False


class Exited(FactBase):
    """The command's end as the backend (or the runner under its claim: `self_reported`) recorded it.

    `stop_recorded` says whether the backend's side recorded our stop before the exit; None: it cannot tell.
    `reason` overrides what code and signal say (out of memory, time limit, …). Without any of them it is no success.
    """

    kind: Literal["exited"] = "exited"
    segment: SegmentKey
    code: int | None = None
    signal: int | None = None
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime
    suspended_ms: int = 0
    stop_recorded: bool | None = None
    reason: EndReason | None = None
    message: Text | None = None
    raw_state: Text
    self_reported: bool = False
    estimated: bool = False


class Lost(FactBase):
    """Gone without any witness after complete, successful observations; `last_seen_at`: the last confirmed sighting."""

    kind: Literal["lost"] = "lost"
    last_seen_at: AwareDatetime | None = None


AnyFact = (
    Admitted
    | Held
    | PolicyStop
    | PolicyPause
    | InputValid
    | InputInvalid
    | Staged
    | StagingFailed
    | StagingSealed
    | Recopied
    | Accepted
    | LaunchRefused
    | LauncherSealed
    | GpusFreed
    | SeenPending
    | SeenRunning
    | SeenIdle
    | SegmentRequeued
    | Exited
    | Lost
)
Fact = Annotated[AnyFact, Field(discriminator="kind")]
FACT: TypeAdapter[AnyFact] = TypeAdapter(Fact)
