"""The facts that a launch has told, made from its row alone: the same whenever they are told again. Pure."""

from typing import Final

from services.launcher.domain import Launch
from shared.backends.clusters import LOCAL
from shared.lifecycle.facts import Accepted, AnyFact, GpusFreed, LauncherSealed, LaunchRefused, SegmentKey, Version
from shared.lifecycle.reasons import EndReason

_ELSEWHERE: Final = "slurm"
"""The kind of every cluster but this machine."""


def accepted(row: Launch, source: str, epoch: int) -> Accepted:
    """The backend took it. The row holds version and times; told in a later epoch, it is told anew."""
    assert row.accepted_n is not None, "only a row that was accepted has this fact"
    assert row.accepted_at is not None, "set together with the version"
    return Accepted(
        job=row.job,
        tenant=row.tenant,
        attempt=row.attempt,
        version=Version(epoch=epoch, n=row.accepted_n),
        at=row.accepted_at,
        source=source,
        segment=SegmentKey(submission=row.submission, restart=0, created_at=row.begun_at or row.accepted_at),
        backend=LOCAL if row.cluster == LOCAL else _ELSEWHERE,
        cluster=row.cluster,
        ref=row.ref or row.submission,
    )


def sealed(row: Launch, source: str, epoch: int) -> tuple[AnyFact, ...]:
    """The GPUs are free and the launcher's vote is given; before both, why the backend never took it, if so."""
    assert row.sealed_n is not None, "only a sealed row has these facts"
    assert row.sealed_at is not None, "set together with the version"
    assert row.ran is not None, "set together with the version"
    head = {
        "job": row.job,
        "tenant": row.tenant,
        "attempt": row.attempt,
        "version": Version(epoch=epoch, n=row.sealed_n),
        "at": row.sealed_at,
        "source": source,
    }
    told: list[AnyFact] = []
    if row.refused_message is not None:
        reason = EndReason(row.refused_reason or EndReason.LAUNCH_REFUSED)
        told.append(LaunchRefused(**head, reason=reason, message=row.refused_message))
    vote = LauncherSealed(**head, ran=row.ran, because="launch_refused" if told else None)
    return (*told, GpusFreed(**head), vote)


def latest(row: Launch, source: str, epoch: int) -> tuple[AnyFact, ...]:
    """The newest that was told of this attempt; nothing while it is being worked on."""
    if row.sealed_n is not None:
        return sealed(row, source, epoch)
    return (accepted(row, source, epoch),) if row.accepted_n is not None else ()
