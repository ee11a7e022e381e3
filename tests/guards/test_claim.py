"""The claim: of two submissions of one attempt that get past everything else, one runs."""

from tests.guards.supervising import supervise
from tests.integration.backends.local.harness import Backend


async def two_submissions_of_one_attempt(backend: Backend, without: str) -> list[str]:
    """Both supervisors are let go at the same moment; what was run more than once."""
    pair = [await backend.request("raced", "sh", "-c", "echo ran >> ledger", token=token) for token in ("one", "two")]
    await supervise(backend, pair, without=without, revoked=False)
    runs = (backend.directory(pair[0]) / "ledger").read_text().split()
    return ["the command ran twice"] if len(runs) > 1 else []


async def test_with_the_claim_an_attempt_runs_once(backend: Backend) -> None:
    assert await two_submissions_of_one_attempt(backend, "whole") == []


async def test_without_the_claim_it_runs_twice(backend: Backend) -> None:
    assert await two_submissions_of_one_attempt(backend, "claim") == ["the command ran twice"]
