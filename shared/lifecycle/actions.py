"""What may be done with a job now, and if not, the sentence why: the same table that `advance` reads."""

from datetime import datetime
from typing import Final

from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance
from shared.lifecycle.facts import Frozen
from shared.lifecycle.record import JobRecord


class Action(Frozen):
    """Whether a command is possible now; `why_not` is a sentence where it is not."""

    allowed: bool
    why_not: str | None = None


ACTIONS: Final = ("stop", "pause", "resume", "retry", "delete", "hold", "release", "recopy")


def command_of(action: str, actor: str, at: datetime, *, by_admin: bool = False) -> i.AnyCommand:
    """The command that an action's name stands for, with nothing optional set."""
    data: dict[str, object] = {"kind": action, "actor": actor, "at": at}
    if action in ("pause", "resume", "hold", "release"):
        data["by_admin"] = by_admin
    if action == "hold":
        data["reason"] = "held by hand"
    command = i.INPUT.validate_python(data)
    assert isinstance(command, i.CommandBase)
    return command


def actions(record: JobRecord, now: datetime, *, by_admin: bool = False) -> dict[str, Action]:
    """Every action with its answer. Asking for what is so already is not an error, but not offered either."""
    answers = {}
    for name in ACTIONS:
        outcome = advance(record, [command_of(name, "somebody", now, by_admin=by_admin)], now).outcomes[0]
        answers[name] = Action(allowed=outcome.what == "applied", why_not=outcome.why)
    return answers
