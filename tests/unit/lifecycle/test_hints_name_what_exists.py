"""A hint names only commands and options that the command line of this version has."""

import re

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from services.cli.main import app
from shared.lifecycle.reasons import REASONS, EndReason, RetryClass
from shared.lifecycle.states import State

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
