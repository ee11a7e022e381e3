"""A hint names only commands and options that the command line of this version has."""

import re

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from services.cli.main import app
from shared.lifecycle.reasons import REASONS, EndReason

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


@pytest.mark.parametrize("reason", list(EndReason))
def test_whoever_may_try_again_is_told_to_submit_again(reason: EndReason) -> None:
    assert not re.search(r"\b(retry|resume)\b", _hint(reason))
