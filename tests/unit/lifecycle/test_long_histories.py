"""The property tests of the rules over very many histories: `make test-long`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.lifecycle import (
    test_a_pipeline_is_asked_as_one,
    test_attempts_fence_and_are_sealed,
    test_evidence_commutes,
    test_gpu_time,
    test_nothing_is_succeeded_because_it_could_not_be_observed,
    test_replay,
    test_terminal_absorbs,
    test_total,
)
from tests.unit.lifecycle.histories import worlds

OF_A_WORLD = (
    test_total.test_every_history_comes_to_rest_once_its_services_answer,
    test_attempts_fence_and_are_sealed.test_attempts_fence_and_are_sealed,
    test_nothing_is_succeeded_because_it_could_not_be_observed.test_nothing_is_succeeded_because_it_could_not_be_observed,
    test_terminal_absorbs.test_terminal_absorbs,
    test_gpu_time.test_gpu_time_is_never_negative_and_never_falls_with_time,
)
OF_A_WORLD_AND_A_SEED = (
    test_evidence_commutes.test_evidence_commutes,
    test_evidence_commutes.test_evidence_commutes_across_the_verdict,
    test_replay.test_replay,
)
OF_A_PIPELINE = (
    test_a_pipeline_is_asked_as_one.test_a_step_never_starts_early_none_is_lost_and_the_word_is_that_of_the_rule
)
HISTORIES = 20_000


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("rule", "drawn"),
    [
        *(pytest.param(rule, (worlds(),), id=rule.__name__) for rule in OF_A_WORLD),
        *(
            pytest.param(rule, (worlds(), st.integers(0, 2**32 - 1)), id=rule.__name__)
            for rule in OF_A_WORLD_AND_A_SEED
        ),
        pytest.param(OF_A_PIPELINE, test_a_pipeline_is_asked_as_one.PLAYS, id=OF_A_PIPELINE.__name__),
    ],
)
def test_a_rule_holds_for_very_many_histories(rule: Callable[..., None], drawn: tuple[Any, ...]) -> None:
    quiet = list(HealthCheck)
    many: Any = settings(max_examples=HISTORIES, deadline=None, suppress_health_check=quiet)
    over: Any = given(*drawn)
    over(many(rule.hypothesis.inner_test))()  # type: ignore[attr-defined]  # the plain function is kept there
