"""A hint names only commands and options that the command line of this version has, and only what is permitted."""

import re

import pytest
from hypothesis import given, settings
from typer.core import TyperGroup
from typer.main import get_command

from services.cli.main import app
from shared.lifecycle import inputs as i
from shared.lifecycle.actions import actions
from shared.lifecycle.reasons import REASONS, EndReason, RetryClass
from shared.lifecycle.record import PipelineRef, Workstation
from shared.lifecycle.states import State
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.jobs import ID, a_job
from tests.unit.lifecycle.world import World

GROUP = get_command(app)
assert isinstance(GROUP, TyperGroup)
COMMANDS = GROUP.commands


def _hint(reason: EndReason) -> str:
    return REASONS[reason].hint or ""


@pytest.mark.parametrize("reason", list(EndReason))
def test_a_hint_names_commands_that_exist(reason: EndReason) -> None:
    for called, _, after in re.findall(r"tidegate (\S+)( ([^\s;,]+))?", _hint(reason)):
        assert called in COMMANDS
        assert after in ("", "{job}"), "what follows a command is the job: a command below it would not be found"


@pytest.mark.parametrize("reason", list(EndReason))
def test_a_hint_names_options_that_exist(reason: EndReason) -> None:
    options = {option for command in COMMANDS.values() for one in command.params for option in one.opts}
    assert set(re.findall(r"--[a-z-]+", _hint(reason))) <= options


@pytest.mark.parametrize("reason", [one for one, row in REASONS.items() if row.state is State.PAUSED])
def test_whoever_paused_it_is_told_how_it_goes_on(reason: EndReason) -> None:
    assert "resume" in _hint(reason)


@pytest.mark.parametrize(
    "reason", [reason for reason, row in REASONS.items() if row.retry is RetryClass.INFRASTRUCTURE]
)
def test_what_was_no_fault_of_the_job_is_retried_and_not_submitted_again(reason: EndReason) -> None:
    assert "retry" in _hint(reason)
    assert "submit" not in _hint(reason)


def test_a_retry_is_told_of_only_while_one_by_hand_is_left() -> None:
    job = a_job(by_hand=1).ask(i.Stop)
    assert job.record.hint == f"start it again with: tidegate retry {ID}"
    job.ask(i.Retry).ask(i.Stop)
    assert job.record.hint == "its budget of 1 retries by hand is spent: submit it again"


def test_a_step_that_was_not_reached_is_retried_with_its_pipeline() -> None:
    place = PipelineRef(id="p01", step="eval", index=1, after="j01")
    assert a_job(pipeline=place).ask(i.Stop).record.hint == "start it again with its pipeline: tidegate retry p01"


def test_what_came_back_is_told_of_also_where_no_retry_is_left() -> None:
    job = a_job(by_hand=0).started().exited().released().copied_back("failed", message="disk full")
    said = f"what came back is in tidegate outputs {ID}; its budget of 0 retries by hand is spent: submit it again"
    assert job.record.hint == said


def test_a_suspended_workstation_is_resumed_as_one() -> None:
    job = a_job(kind="workstation", workstation=Workstation()).ask(i.Pause)
    assert job.record.hint == f"go on with: tidegate workstation resume {ID}"
    used_up = a_job(kind="workstation", workstation=Workstation(), time_limit=2).started().ask(i.Stop)
    used_up.exited(stop_recorded=True).sealed()
    assert used_up.record.hint == "its maximum lifetime is used up: start another workstation"


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_no_hint_names_a_command_that_would_be_refused(world: World) -> None:
    record = world.record
    permitted = actions(record, world.now)
    for command in ("resume", "retry"):
        if f"tidegate {command} {record.id}" in (record.hint or "") and record.recopy is None and not record.deleted:
            assert permitted[command].allowed, (record.hint, permitted[command].why_not)
