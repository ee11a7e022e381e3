"""The steps of `submit --then`: one command each, with the options of the first."""

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

import typer
from pydantic import ValidationError

from shared.contracts.spec import MAX_STEPS, PipelineRequest, SubmitRequest

_INTERPRETERS: Final = re.compile(r"python[\d.]*|sh|bash|dash|zsh|perl|ruby|node|Rscript|julia")
_OF_A_SHELL: Final = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>", "2>&1"})


def split(text: str) -> list[str]:
    """The words of a `--then`, as a shell would part them. No shell runs them, so what only a shell does is refused."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"--then {text!r} cannot be parted into words: {error}") from None
    if not words:
        raise typer.BadParameter(f"--then {text!r} holds no command")
    for word in words:
        if word in _OF_A_SHELL:
            wrapped = f"sh -c {shlex.quote(text)}"
            raise typer.BadParameter(
                f"--then {text!r}: {word} is for a shell, and none runs the step: give one --then for each command, "
                f"or --then {shlex.quote(wrapped)}"
            )
    return words


def pipeline_of(first: SubmitRequest, later: Sequence[Sequence[str]]) -> PipelineRequest:
    """The pipeline of a job and the commands after it; it is named as the first step is."""
    if len(later) >= MAX_STEPS:
        raise typer.BadParameter(
            f"--then was given {len(later)} times; a pipeline has at most {MAX_STEPS} steps, the first one included"
        )
    commands = [first.spec.command, *later]
    names = _names([first.name or name_of(commands[0]), *map(name_of, later)])
    try:
        steps = tuple(
            SubmitRequest(
                spec=first.spec.model_validate(first.spec.model_dump() | {"command": command}),
                name=name,
                project=first.project,
                priority=first.priority,
            )
            for command, name in zip(commands, names, strict=True)
        )
        return PipelineRequest(name=names[0], steps=steps)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(f"--then: {said}") from None


def name_of(command: Sequence[str]) -> str:
    """A step's name: its script's where an interpreter runs one, else its program's."""
    program = PurePath(command[0]).name
    script = PurePath(command[1]) if len(command) > 1 else PurePath()
    named = script.stem if _INTERPRETERS.fullmatch(program) and script.suffix and command[1][0] != "-" else program
    shown = "".join(one if one.isprintable() else "?" for one in named[:80])
    return shown if shown.strip() else "step"


def _names(wanted: Sequence[str]) -> list[str]:
    """The names, numbered where they would be the same."""
    names: list[str] = []
    for name in wanted:
        number, unique = 1, name
        while unique in names:
            number += 1
            unique = f"{name}-{number}"
        names.append(unique)
    return names
