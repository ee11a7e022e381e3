"""Records as the local backend writes them."""

from datetime import UTC, datetime, timedelta

from shared.backends.local.records import ExitRecord, ProcessIdentity

START = datetime(2026, 11, 30, 9, tzinfo=UTC)
SUBMISSION = f"tidegate.j{'0' * 26}.a1.s1"
SUPERVISOR = ProcessIdentity(1, 1, "boot")


def an_exit(
    *, ran: bool = True, code: int | None = 0, reason: str | None = None, signal: int | None = None
) -> ExitRecord:
    """The record of an end."""
    return ExitRecord(
        submission=SUBMISSION,
        job="j" + "0" * 26,
        attempt=1,
        tenant="acme",
        ran=ran,
        code=code,
        signal=None,
        reason=reason,
        sentence=None,
        started_at=START if ran else None,
        ended_at=START + timedelta(seconds=2),
        duration_ms=2000,
        stop_seen_at=None,
        devices=(),
        max_rss_bytes=None,
        self_reported=False,
    )
