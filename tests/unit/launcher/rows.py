"""A row of the launcher, to be varied."""

from datetime import UTC, datetime

from services.launcher.domain import Launch, State
from tests.unit.watcher.records import SUBMISSION

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
ROW = Launch(
    job="j" + "0" * 26,
    attempt=1,
    tenant="acme",
    epoch=1,
    seq=3,
    state=State.REVOKING,
    submission=SUBMISSION,
    directory=None,
    spec_digest="sha256:0",
    gpus=0,
    time_limit_seconds=None,
    next_at=NOW,
    grace_seconds=10,
)
