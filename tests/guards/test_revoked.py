"""`revoked`: a supervisor that was forked before the revocation and takes its claim after it starts nothing."""

from tests.guards.supervising import supervise
from tests.integration.backends.local.harness import Backend


async def a_supervisor_that_was_frozen_over_the_seal(backend: Backend, without: str) -> list[str]:
    """The attempt is revoked and its claims are read while a supervisor hangs before its claim; what it did then."""
    request = await backend.request("frozen", "sh", "-c", "echo ran >> ledger")
    saw_a_claim = await supervise(backend, [request], without=without, revoked=True)
    ran = (backend.directory(request) / "ledger").exists()
    return ["the command started after a vote that nothing runs"] if ran and not saw_a_claim else []


async def test_with_revoked_nothing_starts_after_the_vote(backend: Backend) -> None:
    assert await a_supervisor_that_was_frozen_over_the_seal(backend, "whole") == []


async def test_without_the_look_for_revoked_the_command_starts(backend: Backend) -> None:
    found = await a_supervisor_that_was_frozen_over_the_seal(backend, "revoked")
    assert found == ["the command started after a vote that nothing runs"]
