"""What is asked of the local backend, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from shared.backends.local.records import ExitRecord, ProcessIdentity


class CouldNotAsk(Exception):
    """No information: the records or the host could not be asked. Never to be read as an absence."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Run `command` in `<attempt's directory>/<directory>`, which is staged already.

    `environment` may hold secrets: its values are never written to disk. The host adds TIDEGATE_*, HOME and
    CUDA_VISIBLE_DEVICES. After `not_after` the host refuses: a launch never outlives the launcher's own deadline.
    `warning_signal` is sent `warning_seconds` before the time limit; at the limit it gets SIGTERM, and SIGKILL after
    `stop_grace_seconds`. A workstation gets a port and a secret, and its activity is recorded.
    """

    submission: str
    tenant: str
    run: str
    directory: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    coretype: str = "local"
    gpus: int = 0
    nodes: int = 1
    time_limit_seconds: int | None = None
    stop_grace_seconds: float = 30.0
    warning_signal: int | None = None
    warning_seconds: int = 60
    resumed: bool = False
    workstation: bool = False
    not_after: datetime | None = None

    def __post_init__(self) -> None:
        if self.not_after is not None and self.not_after.tzinfo is None:
            raise ValueError(f"not_after {self.not_after} has no time zone: give an aware datetime")

    def fields(self) -> dict[str, object]:
        """As the host reads it."""
        return {
            "submission": self.submission,
            "tenant": self.tenant,
            "run": self.run,
            "directory": self.directory,
            "command": list(self.command),
            "env": dict(self.environment),
            "gpus": self.gpus,
            "time_limit_seconds": self.time_limit_seconds,
            "stop_grace_seconds": self.stop_grace_seconds,
            "warning_signal": None if self.warning_signal is None else int(self.warning_signal),
            "warning_seconds": self.warning_seconds,
            "resumed": self.resumed,
            "workstation": self.workstation,
            "not_after_ms": int(self.not_after.timestamp() * 1000) if self.not_after is not None else None,
        }


class LaunchKind(StrEnum):
    """What became of a launch."""

    ACCEPTED = "accepted"  # the intent is on disk and a supervisor is forked
    ALREADY = "already"  # this submission was launched before: it runs, or has ended; look at its records
    BUSY = "busy"  # not now: no GPUs or slots; the sentence has the numbers; nothing was recorded
    REFUSED = "refused"  # not ever as given; `reason` is a word, the sentence says what is right
    UNCLEAR = "unclear"  # could not ask, or no answer came: launch the same again


@dataclass(frozen=True, slots=True)
class LaunchAnswer:
    """Reasons of `refused`: invalid_order, no_uid, attempt_claimed, revoked, too_late, too_many_gpus, configuration.
    `ref` is the backend's own name for what it took, where that is not the submission's."""

    submission: str
    kind: LaunchKind
    reason: str | None
    sentence: str
    ref: str | None = None

    @classmethod
    def read(cls, submission: str, answer: object) -> LaunchAnswer:
        """An answer that cannot be read, or is about another submission, is unclear."""
        if isinstance(answer, dict) and answer.get("submission") == submission:
            kind, reason = answer.get("answer"), answer.get("reason")
            if kind in set(LaunchKind):
                return cls(submission, LaunchKind(kind), reason, str(answer.get("sentence")))
        return cls(submission, LaunchKind.UNCLEAR, None, f"the local host's answer cannot be read: {answer!r}")


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The host as it describes itself."""

    host: ProcessIdentity | None
    gpus_total: int
    gpus_free: int
    virtual: bool
    slots_total: int
    slots_free: int
    live: int
    isolation: str

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> HostStatus:
        """Raises CouldNotAsk when it does not add up to a status."""
        numbers = [fields.get(name) for name in ("gpus_total", "gpus_free", "slots_total", "slots_free", "live")]
        if not all(type(number) is int for number in numbers):
            raise CouldNotAsk(f"the local host's status cannot be read: {fields!r}")
        gpus_total, gpus_free, slots_total, slots_free, live = (int(str(number)) for number in numbers)
        return cls(
            host=ProcessIdentity.read(fields.get("host")),
            gpus_total=gpus_total,
            gpus_free=gpus_free,
            virtual=fields.get("virtual") is True,
            slots_total=slots_total,
            slots_free=slots_free,
            live=live,
            isolation=str(fields.get("isolation")),
        )


class StopAnswer(StrEnum):
    """What a stop request met."""

    ASKED = "asked"  # the request is on disk and its supervisor lives
    ENDED = "ended"  # it had ended before
    GONE = "gone"  # no supervisor is left, nor a record of its end: kill() makes sure that nothing else is
    ABSENT = "absent"  # there is no record of such a submission


class KillKind(StrEnum):
    """How sure the end is."""

    ENDED = "ended"  # there is a record of the end
    GONE = "gone"  # no record of the end, and no process of it is left
    ABSENT = "absent"  # there is no record of it at all, and no process
    UNCLEAR = "unclear"  # something of it would not end in time: ask again


@dataclass(frozen=True, slots=True)
class KillAnswer:
    """`exit` is set when `kind` is ended."""

    kind: KillKind
    exit: ExitRecord | None = None
    sentence: str | None = None


class ReleaseAnswer(StrEnum):
    """What became of the records."""

    RELEASED = "released"  # they are under released/<date>/, now or since an earlier call
    LIVE = "live"  # it, or what its dead supervisor left, has not ended: nothing was moved
    ABSENT = "absent"  # there is no record of it


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim on an attempt; `submission` is None when the file cannot be read, which makes it no less a claim."""

    name: str
    submission: str | None
