"""Which retries a new job gets."""

import pytest

from services.api.budgets import Budgets
from services.api.settings import ApiSettings
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.unit.api.test_settings import GIVEN


def budgets(**settings: str) -> Budgets:
    return Budgets.of(ApiSettings.load({**GIVEN, **settings}))


def asking(retries: int | None) -> SubmitRequest:
    return SubmitRequest(spec=JobSpec(command=("true",)), retries=retries)


def test_a_job_that_asks_for_nothing_gets_what_is_usual() -> None:
    usual = budgets().given_to(asking(None))
    assert (usual.budget, usual.infrastructure_budget, usual.by_hand_budget) == (0, 3, 20)
    other = budgets(
        TIDEGATE_RETRY_BUDGET="2", TIDEGATE_INFRASTRUCTURE_RETRY_BUDGET="0", TIDEGATE_RETRIES_BY_HAND="1"
    ).given_to(asking(None))
    assert (other.budget, other.infrastructure_budget, other.by_hand_budget) == (2, 0, 1)


def test_a_job_may_ask_for_other_retries_of_its_own_failures_only() -> None:
    given = budgets(TIDEGATE_RETRY_BUDGET="2").given_to(asking(0))
    assert (given.budget, given.infrastructure_budget) == (0, 3)


@pytest.mark.parametrize(("asked", "most", "refused"), [(None, 0, False), (3, 3, False), (4, 3, True), (1, 0, True)])
def test_more_than_the_most_is_refused(asked: int | None, most: int, refused: bool) -> None:
    why_not = budgets(TIDEGATE_RETRIES_MAX=str(most)).why_not(asking(asked))
    assert (why_not is not None) is refused
    if why_not is not None:
        assert why_not.startswith(f"retries: {asked} was given, and a job may ask for at most {most} automatic retries")
