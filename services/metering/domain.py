"""What a segment costs and what the ledger says of it: pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from pydantic import AwareDatetime

from shared.contracts.events import JobEvent
from shared.contracts.usage import UsageLine
from shared.lifecycle.facts import Frozen


class SegmentId(NamedTuple):
    """One period of holding GPUs, for ever."""

    job: str
    attempt: int
    submission: str
    restart: int


class Reading(Frozen):
    """A segment as the event `(epoch, seq)` of its job has it."""

    job: str
    attempt: int
    submission: str
    restart: int
    epoch: int
    seq: int
    tenant: str
    user: str
    project: str
    coretype: str
    gpus: int
    started_at: AwareDatetime | None
    ended_at: AwareDatetime | None
    ended: Literal["exited", "requeued", "lost"] | None
    suspended_ms: int
    gpu_milliseconds: int | None
    estimated: bool
    billable: bool

    @property
    def id(self) -> SegmentId:
        return SegmentId(self.job, self.attempt, self.submission, self.restart)

    @property
    def version(self) -> tuple[int, int]:
        return (self.epoch, self.seq)

    @property
    def skewed(self) -> bool:
        """Its clocks disagree: it ended before it started, and counts as nothing."""
        return self.started_at is not None and self.ended_at is not None and self.ended_at < self.started_at


class Known(NamedTuple):
    """What the slice has of a segment: the version of its newest reading, and the line that stands in the ledger."""

    version: tuple[int, int]
    revision: int
    line: UsageLine | None


UNKNOWN: Final = Known((0, 0), 0, None)


@dataclass(frozen=True, slots=True)
class Change:
    """A newer reading, with the lines that follow from it. `line` stands afterwards."""

    reading: Reading
    revision: int
    line: UsageLine | None
    lines: tuple[UsageLine, ...]


@dataclass(frozen=True, slots=True)
class Sent:
    """The last that was sent of a segment: its line, or the reversal of it."""

    newest: UsageLine

    @property
    def line(self) -> UsageLine | None:
        """What stands in the ledger."""
        return self.newest if self.newest.kind == "segment" else None


def readings(event: JobEvent) -> list[Reading]:
    """Every segment that the event carries."""
    job = event.job
    return [
        Reading(
            job=job.id,
            attempt=attempt,
            submission=segment.key.submission,
            restart=segment.key.restart,
            epoch=job.epoch,
            seq=job.seq,
            tenant=job.tenant,
            user=job.user,
            project=job.project,
            coretype=job.resources.coretype,
            gpus=segment.gpus,
            started_at=segment.started_at,
            ended_at=segment.ended_at,
            ended=segment.ended,
            suspended_ms=segment.suspended_ms,
            gpu_milliseconds=segment.gpu_milliseconds,
            estimated=segment.estimated,
            billable=segment.billable,
        )
        for attempt, segment in event.segments()
    ]


def newest(found: Iterable[Reading]) -> dict[SegmentId, Reading]:
    """The newest reading of each segment, in the order of their ids."""
    kept: dict[SegmentId, Reading] = {}
    for reading in found:
        before = kept.get(reading.id)
        if before is None or before.version <= reading.version:
            kept[reading.id] = reading
    return dict(sorted(kept.items()))


def change(known: Known, reading: Reading) -> Change | None:
    """What a reading changes; None where it is not newer than what is known.

    A segment gets one line when it has ended. A reading that says otherwise later takes it back and adds the right one.
    """
    if reading.version <= known.version:
        return None
    stands = known.line
    right = None if reading.ended_at is None else _line(reading, known.revision + 1)
    if stands is not None and right is not None and _same(stands, right):
        return Change(reading, known.revision, stands, ())
    back = () if stands is None else (_reversal(stands),)
    if right is None:
        return Change(reading, known.revision, None, back)
    return Change(reading, right.revision, right, (*back, right))


def newest_sent(lines: Iterable[UsageLine]) -> dict[SegmentId, Sent]:
    """What the ledger says of each segment after these lines, in the order in which they were sent."""
    found: dict[SegmentId, Sent] = {}
    for line in lines:
        id_ = SegmentId(line.job, line.attempt, line.submission, line.restart)
        before = found.get(id_)
        if before is None or before.newest.revision <= line.revision:
            found[id_] = Sent(line)
    return dict(sorted(found.items()))


def _line(reading: Reading, revision: int) -> UsageLine:
    assert reading.ended_at is not None, "only what has ended gets a line"
    fields = reading.model_dump(include=set(UsageLine.model_fields) - {"gpu_milliseconds"})
    return UsageLine(
        **fields,
        id="/".join(map(str, (*reading.id, revision))),
        kind="segment",
        revision=revision,
        gpu_milliseconds=reading.gpu_milliseconds or 0,
    )


def _reversal(line: UsageLine) -> UsageLine:
    changed = {"id": f"{line.id}/reversed", "kind": "reversal", "gpu_milliseconds": -line.gpu_milliseconds}
    return line.model_copy(update=changed)


def _same(one: UsageLine, other: UsageLine) -> bool:
    number = {"id": "", "revision": 0}
    return one.model_copy(update=number) == other.model_copy(update=number)
