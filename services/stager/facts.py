"""What the stager reports, built from one heading per transaction. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from services.stager.domain import Outcome
from shared.contracts.facts import encode_fact
from shared.lifecycle.facts import (
    FACT,
    MAX_ITEMS,
    AnyFact,
    Finding,
    InputInvalid,
    InputValid,
    Staged,
    StagingFailed,
    StagingSealed,
    Version,
)
from shared.runtime.outbox import Outgoing

SERVICE: Final = "stager"
Why = Literal["input_invalid", "staging_failed"]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a copy. `manifest` is its name in the blob store, none where nothing could be stored."""

    outcome: Outcome
    files: int = 0
    size_bytes: int = 0
    manifest: str | None = None
    missing: tuple[str, ...] = ()
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Heading:
    """Whom facts are about, and their versions: the database's epoch, and one number for each, higher than any before
    it in that epoch."""

    job: str
    tenant: str
    attempt: int
    at: datetime
    source: str
    numbers: Iterator[int]
    epoch: int = 1

    def valid(self, warnings: Sequence[str]) -> InputValid:
        """Every input checks out; `warnings` say what could not be confirmed."""
        return InputValid(**self._next(), warnings=tuple(warnings))

    def invalid(self, findings: Sequence[Finding]) -> InputInvalid:
        """Confirmed bad."""
        return InputInvalid(**self._next(), findings=_bounded(findings))

    def staged(self, directory: str, *, nothing_to_copy: bool) -> Staged:
        """The files lie in `directory`."""
        return Staged(**self._next(), directory=directory, nothing_to_copy=nothing_to_copy)

    def failed(self, message: str) -> StagingFailed:
        """Staging in failed for good."""
        return StagingFailed(**self._next(), message=message)

    def sealed(self, *, staged: bool, result: Result, because: Why | None = None) -> StagingSealed:
        """The vote. `because` names the fact, told with it, that says why nothing was staged."""
        return StagingSealed(
            **self._next(),
            staged=staged,
            because=because,
            outcome=result.outcome,
            files=result.files,
            size_bytes=result.size_bytes,
            manifest=result.manifest,
            missing=result.missing,
            message=result.message,
        )

    def _next(self) -> dict[str, Any]:
        version = Version(epoch=self.epoch, n=next(self.numbers))
        return {
            "job": self.job,
            "tenant": self.tenant,
            "attempt": self.attempt,
            "version": version,
            "at": self.at,
            "source": self.source,
        }


def outgoing(fact: AnyFact, *, answer: int | None = None) -> Outgoing:
    """The message for a fact; `answer` tells a known one again."""
    wire = encode_fact(SERVICE, fact, answer=answer)
    return Outgoing(subject=wire.subject, msg_id=wire.msg_id, key=wire.key, body=wire.body)


def again(told: Sequence[object], answer: int) -> list[Outgoing]:
    """The messages for facts as a row keeps them."""
    return [outgoing(FACT.validate_python(fact), answer=answer) for fact in told]


def _bounded(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """As many as a fact carries; the last one counts the others."""
    if len(findings) <= MAX_ITEMS:
        return tuple(findings)
    kept = findings[: MAX_ITEMS - 1]
    left = len(findings) - len(kept)
    return (*kept, Finding(code="more", place="", message=f"and {left} more: correct these first"))
