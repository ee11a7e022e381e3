"""The steps of `submit --then`: one command each, with the options of the first."""

import posixpath
import re
import shlex
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Final

import typer
from pydantic import ValidationError

from shared.contracts.spec import MAX_STEPS, PipelineRequest, SubmitRequest

_INTERPRETERS: Final = re.compile(r"python[\d.]*|sh|bash|dash|zsh|perl|ruby|node|Rscript|julia")
_QUOTED: Final = re.compile(r"""\\.|'[^']*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_OPERATOR: Final = re.compile(r"[;|&<>]+")
_SINGLE_QUOTED: Final = re.compile(r"""\\.|'[^']*'""", re.DOTALL)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_VARIABLE: Final = re.compile(r"\$(?:\w+|\{\w+\}|\()|`")
_PATTERN: Final = re.compile(r"[^\s\"']*\*[^\s\"']*|(?<!\S)~\S*")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def split(text: str) -> list[str]:
    """The words of a `--then`, as a shell would part them. No shell runs them, so what only a shell does is refused."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"--then {text!r} cannot be parted into words: {error}") from None
    if not words:
        raise typer.BadParameter(f"--then {text!r} holds no command")
    if (word := _of_a_shell(text, words)) is not None:
        wrapped = "…" if "'" in text or '"' in text else text
        raise typer.BadParameter(
            f"--then {text!r}: {word} is for a shell, and none runs the step: give one --then for each command, "
            f"or --then \"sh -c '{wrapped}'\""
        )
    if (word := _expanded(text, words)) is not None:
        wrapped = "…" if "'" in text or '"' in text else text
        raise typer.BadParameter(
            f"--then {text!r}: {word} means something to a shell only, and none runs the step: give "
            f"--then 'sh -c \"{wrapped}\"', or put single quotes around it where it is meant as it is"
        )
    return words


def _of_a_shell(text: str, words: Sequence[str]) -> str | None:
    """The first thing in it that only a shell does, outside of quotes, also with no space around it."""
    if _ASSIGNMENT.fullmatch(words[0]):
        return words[0]
    found = _OPERATOR.search(_QUOTED.sub("_", text))
    return None if found is None else found[0]


def _expanded(text: str, words: Sequence[str]) -> str | None:
    """The first word in it that a shell would put something else for: a variable, a pattern, another command's output,
    a home. What a `sh -c` is given in double quotes is for that shell."""
    own_shell = len(words) > 2 and PurePath(words[0]).name in _SHELLS and words[1].startswith("-")
    outside = (_QUOTED if own_shell else _SINGLE_QUOTED).sub("_", text)
    found = _VARIABLE.search(outside) or _PATTERN.search(_QUOTED.sub("_", text))
    return None if found is None else found[0].strip()


def files_can_be_there(later: Sequence[Sequence[str]], directory: Path | None, outputs: Sequence[str]) -> None:
    """Refuse a later step whose program or script is neither submitted nor named by an --out: found out only when it is
    its turn, that would cost the time of all steps before it."""
    for command in later:
        path = _own_file(command)
        if path is None or any(_may_name(pattern, path) for pattern in outputs):
            continue
        if directory is None or not (directory / path).exists():
            near = [] if directory is None else [one.name for one in (directory / path).parent.glob("*")]
            found = get_close_matches(PurePath(path).name, near, 1)
            hint = f"did you mean {PurePath(path).with_name(found[0])}?" if found else "no --out names it either"
            raise typer.BadParameter(f"--then {shlex.join(command)!r}: there is no {path}; {hint}")


def _own_file(command: Sequence[str]) -> str | None:
    """The file of the working directory that a command certainly begins with."""
    given = command[0] if "/" in command[0] else _script(command)
    return None if given is None or given.startswith("/") else posixpath.normpath(given)


def _may_name(pattern: str, path: str) -> bool:
    folder = posixpath.normpath(pattern).replace("**/", "*")  # it may stand for no folder at all
    return folder == "." or fnmatchcase(path, folder) or fnmatchcase(path, f"{folder}/*")


def _script(command: Sequence[str]) -> str | None:
    """The script that an interpreter is given first."""
    runs_one = _INTERPRETERS.fullmatch(PurePath(command[0]).name) and len(command) > 1
    return command[1] if runs_one and PurePath(command[1]).suffix and command[1][0] != "-" else None


def not_read(command: Sequence[str]) -> str | None:
    """The sentence about a `--then` that stands after the `--` and so is an argument of the command."""
    if not any(word == "--then" or word.startswith("--then=") for word in command):
        return None
    return "--then after the -- is an argument of the command: for another step put it before, as in: " + (
        "tidegate submit --then CMD2 -- CMD"
    )


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
                retries=first.retries,
            )
            for command, name in zip(commands, names, strict=True)
        )
        return PipelineRequest(name=names[0], steps=steps)
    except ValidationError as error:
        said = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise typer.BadParameter(f"--then: {said}") from None


def name_of(command: Sequence[str]) -> str:
    """A step's name: its script's where an interpreter runs one, else its program's."""
    script = _script(command)
    named = PurePath(command[0]).name if script is None else PurePath(script).stem
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
