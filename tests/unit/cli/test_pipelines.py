"""A pipeline on the screen."""

from typing import Any

from services.cli.pipelines import run_time
from shared.client.views import StepView
from tests.unit.cli.given import JOB, at


def step(**fields: Any) -> StepView:
    known = {"job": JOB, "name": "train", "index": 0, "state": "RUNNING", "desired_state": "run"}
    return StepView.model_validate(known | fields)


def test_the_run_time_of_a_step_is_its_commands_and_not_that_of_what_follows() -> None:
    assert run_time(step(), at(99)) == ""
    assert run_time(step(started_at=at(3)), at(8)) == "5.00 s"
    stopping = step(started_at=at(3), command_ended_at=at(5))
    assert run_time(stopping, at(9)) == "2.00 s"
    assert run_time(step(started_at=at(3), command_ended_at=at(5), finished_at=at(9)), at(99)) == "2.00 s"
    assert run_time(step(started_at=at(3), finished_at=at(9)), at(99)) == "6.00 s", "its end was not seen"
