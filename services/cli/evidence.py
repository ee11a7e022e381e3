"""What was seen of an attempt, one line per fact: when, by whom, and what, in the order of the times."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Final

from services.cli.escapes import marked
from services.cli.output import size
from shared.lifecycle import facts as f

SOURCE_CELLS: Final = 17


def evidence_lines(facts: Iterable[f.AnyFact], day: date) -> list[str]:
    """The lines, without those that only say how the record came about."""
    ordered = sorted(facts, key=lambda fact: (fact.at, fact.version.epoch, fact.version.n))
    return [
        f"[dim]{clock(fact.at, day)}  {marked(fact.source):<{SOURCE_CELLS}}[/] {marked(what(fact))}" for fact in ordered
    ]


def clock(at: datetime, day: date) -> str:
    """The local time of an instant, with its date where that is not `day`."""
    local = at.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == day else f"{local:%m-%d %H:%M:%S}"


def what(fact: f.AnyFact) -> str:
    """What was seen."""
    match fact:
        case f.Admitted():
            return "let through its gates"
        case f.Held():
            return f"held by {fact.gates[0].name}: {fact.gates[0].reason}"
        case f.PolicyStop() | f.PolicyPause():
            return f"policy {fact.policy} asked for a {fact.kind.removeprefix('policy_')}: {fact.reason}"
        case f.InputValid():
            return "inputs and command check out"
        case f.InputInvalid():
            return f"input refused: {fact.findings[0].message}"
        case f.Staged():
            return f"inputs staged in {fact.directory.replace(fact.job, '…')}"
        case f.StagingFailed():
            return f"inputs not staged in: {fact.message}"
        case f.StagingSealed() | f.Recopied():
            return _copied(fact)
        case f.Accepted():
            return f"taken by {fact.cluster} as {fact.ref.replace(fact.job, '…')}"
        case f.LaunchRefused():
            return f"launch refused: {fact.message}"
        case f.LauncherSealed():
            return "nothing of it runs any more" if fact.ran else "it never started, and cannot any more"
        case f.GpusFreed():
            return "its GPUs are free"
        case f.SeenPending() | f.SeenRunning() | f.SegmentRequeued() | f.Exited() | f.Lost() | f.SeenIdle():
            return _sighting(fact)


def _copied(fact: f.StagingSealed | f.Recopied) -> str:
    said = {
        "none": "no outputs to copy back",
        "verified": f"outputs back and verified: {_files(fact.files)}, {size(fact.size_bytes)}",
        "missing": "declared outputs are missing",
        "failed": "outputs could not be copied back",
        "expectation_failed": "an expectation does not hold",
    }[fact.outcome]
    missing = ", ".join(fact.missing) if isinstance(fact, f.StagingSealed) else ""
    return ": ".join(part for part in (said, missing or fact.message) if part)


def _sighting(fact: f.SeenPending | f.SeenRunning | f.SegmentRequeued | f.Exited | f.Lost | f.SeenIdle) -> str:
    match fact:
        case f.SeenPending():
            return f"waiting at the backend: {fact.raw_reason or fact.raw_state}"
        case f.SeenRunning():
            suspended = "" if fact.suspended_since is None else ", suspended by the backend"
            return f"running since {_exact(fact.started_at)}{suspended}"
        case f.SegmentRequeued():
            return f"requeued by the backend at {_exact(fact.ended_at)}: {fact.raw_reason}"
        case f.Exited():
            return _exit(fact)
        case f.Lost():
            last = "" if fact.last_seen_at is None else f", last seen at {_exact(fact.last_seen_at)}"
            return f"gone without anybody having seen its end{last}"
        case f.SeenIdle():
            return "in use" if fact.idle_since is None else f"idle since {_exact(fact.idle_since)}"


def _exit(fact: f.Exited) -> str:
    how = f"signal {fact.signal}" if fact.signal else "no exit code" if fact.code is None else f"code {fact.code}"
    stopped = ", after our stop" if fact.stop_recorded else ""
    told = ", as it reported itself" if fact.self_reported else ""
    about = ", time estimated" if fact.estimated else ""
    said = f": {fact.message}" if fact.message else ""
    return f"exited with {how} at {_exact(fact.ended_at)}{stopped}{told}{about}{said}"


def _exact(at: datetime) -> str:
    local = at.astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03}"


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"
