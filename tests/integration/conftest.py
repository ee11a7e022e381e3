"""What holds for every service that runs inside of a test's own process."""

import pytest

from shared.runtime import leases


@pytest.fixture(autouse=True)
def leases_outlast_a_pause_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the test's process may be kept waiting for longer than the 3 s of a lease. Who takes over when
    it has run out is shown by replicas that are processes of their own, or by a row that says that it has."""
    monkeypatch.setattr(leases, "TTL_SECONDS", 20.0)
