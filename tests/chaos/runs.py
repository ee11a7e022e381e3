"""What the commands did, by the ledger that they wrote, beside the runner's exit records, the meter and the records."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.chaos.handled import Handled, Line
from tests.chaos.remains import added_up, exit_records
from tests.chaos.stand import Stand

_SEGMENTS: Final = """
SELECT job, attempt, submission, restart, gpu_milliseconds, ended_at, started_at, gpus
FROM metering.segments WHERE job = ANY($1)
"""
Attempt = tuple[str, int]


@dataclass(frozen=True)
class Ends:
    """The runner's exit records of commands that ran, by submission."""

    of: Mapping[str, Mapping[str, Any]]
    twice: list[str]

    @classmethod
    def read(cls, stand: Stand, handled: Handled) -> "Ends":
        """Released or not."""
        of: dict[str, Mapping[str, Any]] = {}
        twice = []
        for record in exit_records(stand, handled.made):
            if record["ran"]:
                if record["submission"] in of:
                    twice.append(f"{record['submission']} has two exit records")
                of[record["submission"]] = record
        return cls(of, twice)

    def milliseconds(self) -> dict[Attempt, int]:
        """How long each attempt's command was up."""
        up: dict[Attempt, int] = defaultdict(int)
        for record in self.of.values():
            span = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["started_at"])
            up[record["job"], record["attempt"]] += round(span.total_seconds() * 1000)
        return up


def ran_once(lines: Iterable[Line]) -> Iterator[str]:
    """No submission's command began twice, of one attempt no two submissions', and no attempt while anything of another
    one lived; an attempt that ended has begun."""
    began = [line for line in lines if line.word == "began"]
    for submission, times in Counter(line.submission for line in began).items():
        if times > 1:
            yield f"the command of {submission} began {times} times"
    submissions = defaultdict(set)
    for line in began:
        submissions[line.job, line.attempt].add(line.submission)
    for (job, attempt), names in submissions.items():
        if len(names) > 1:
            yield f"attempt {attempt} of {job} ran as {sorted(names)}"
    newest: dict[str, int] = {}
    for line in began:
        if line.attempt <= newest.get(line.job, 0):
            yield f"attempt {line.attempt} of {line.job} began after attempt {newest[line.job]}"
        newest[line.job] = line.attempt
    for line in lines:
        if line.word == "overlapped":
            yield f"attempt {line.attempt} of {line.job} began while something of an earlier one lived"


def without_an_end(lines: Iterable[Line], ends: Ends) -> set[Attempt]:
    """Attempts that ran and of whose end the runner has no record: their supervisor was killed."""
    return {(line.job, line.attempt) for line in lines if line.word == "began" and line.submission not in ends.of}


def in_order(lines: Iterable[Line], ends: Ends) -> Iterator[str]:
    """An attempt's command begins after the recorded ends of those before it."""
    ended: dict[str, tuple[float, str]] = {}
    for line in lines:
        if line.word == "began":
            before, submission = ended.get(line.job, (0.0, ""))
            if before > line.at:
                yield f"{line.submission} began {before - line.at:.3f} s before the recorded end of {submission}"
            if line.submission in ends.of:
                at = datetime.fromisoformat(ends.of[line.submission]["ended_at"]).timestamp()
                ended[line.job] = max(ended.get(line.job, (0.0, "")), (at, line.submission))


def found_what_was_written(handled: Handled, lines: Iterable[Line], casualties: set[Attempt]) -> Iterator[str]:
    """An attempt finds what the earlier ones of its job, and the steps before it, had written: it was copied back and
    staged in again."""
    wrote: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.word == "found":
            found = line.rest.removeprefix("=").split(",")
            steps = [*handled.made[line.job].before, line.job]
            missing = [tag for job in steps for tag in wrote[job] if tag not in found]
            if missing:
                yield f"attempt {line.attempt} of {line.job} found {line.rest}, and {missing} was written before"
        elif line.word == "wrote" and (line.job, line.attempt) not in casualties:
            wrote[line.job].append(f"{line.job}.{line.attempt}")


def metered_as_it_ran(stand: Stand, handled: Handled, ends: Ends, casualties: set[Attempt]) -> Iterator[str]:
    """Each segment is closed and is what the runner has measured, and the lines of the stream add up to the same."""
    (segments,) = stand.rows((_SEGMENTS, list(handled.made)))
    told = added_up({"job": line.job, "gpu_milliseconds": line.gpu_milliseconds} for line in stand.usage_lines())
    kept = added_up(segments)
    for job in handled.made:
        if kept[job] != told[job]:
            yield f"{job} has segments of {kept[job]} GPU ms, and lines of {told[job]}"
    measured = {
        attempt: milliseconds * handled.made[attempt[0]].gpus for attempt, milliseconds in ends.milliseconds().items()
    }
    metered: dict[Attempt, int] = defaultdict(int)
    for row in segments:
        metered[row["job"], row["attempt"]] += row["gpu_milliseconds"] or 0
        if row["started_at"] is not None and row["ended_at"] is None:
            yield f"the segment {row['submission']} of {row['job']} is open"
        is_casualty = (row["job"], row["attempt"]) in casualties
        if row["started_at"] is not None and row["submission"] not in ends.of and not is_casualty:
            yield f"the segment {row['submission']} of {row['job']} was metered, and the runner knows of no run"
    for job, attempt in sorted({*measured, *metered} - casualties):
        if measured.get((job, attempt), 0) != metered[job, attempt]:
            yield (
                f"attempt {attempt} of {job} held GPUs for {measured.get((job, attempt), 0)} ms, "
                f"and {metered[job, attempt]} were metered"
            )
