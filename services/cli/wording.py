"""The server's sentences for whoever uses the command line: what names a route of the API names the command instead."""

import re
from collections.abc import Mapping
from typing import Final

from shared.lifecycle.actions import Action

_COMMANDS: Final = (
    (
        re.compile(r"there is nothing at \S+: GET /v1/openapi\.json lists what there is"),
        "the server does not know this",
    ),
    (re.compile(r"GET /v1/jobs/(j\w{26})/outputs"), r"`tidegate outputs \1`"),
    (re.compile(r"GET /v1/jobs(?![/\w])"), "`tidegate ls`"),
    (re.compile(r"GET /v1/pipelines(?![/\w])"), "`tidegate pipelines`"),
    (re.compile(r"GET /v1/workstations(?![/\w])"), "`tidegate workstation ls`"),
    (re.compile(r"GET /v1/tokens(?![/\w])"), "`tidegate token ls`"),
)


def permitted(hint: str | None, actions: Mapping[str, Action]) -> str | None:
    """`hint`, unless it tells of a retry that would be refused: then why it would."""
    retry = actions.get("retry")
    if hint is None or "tidegate retry j" not in hint or retry is None or retry.allowed:
        return hint
    return f"it cannot be retried: {retry.why_not}"


def in_commands(sentence: str) -> str:
    """`sentence` with the commands that stand for the routes in it."""
    for route, command in _COMMANDS:
        sentence = route.sub(command, sentence)
    return sentence
