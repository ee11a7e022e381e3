"""What people and policies ask, and every input of `advance` in one union.

A command is decided in the HTTP handler under the row's lock, so that its answer is final.
"""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from shared.lifecycle.facts import AnyFact, Frozen, Text


class CommandBase(Frozen):
    """`actor` is who asks; `at` when."""

    actor: Text
    at: AwareDatetime


class Stop(CommandBase):
    kind: Literal["stop"] = "stop"
    force: bool = False
    grace_seconds: int | None = None


class Pause(CommandBase):
    """`by_admin`: only an admin resumes it."""

    kind: Literal["pause"] = "pause"
    reason: Text | None = None
    by_admin: bool = False


class Resume(CommandBase):
    kind: Literal["resume"] = "resume"
    by_admin: bool = False


class Retry(CommandBase):
    """`force`: also where nobody can prove that a lost attempt is gone. `with_pipeline`: with every step that did not
    succeed, so that this one waits for those before it."""

    kind: Literal["retry"] = "retry"
    force: bool = False
    with_pipeline: bool = False


class Snooze(CommandBase):
    """Do not suspend the workstation for being idle before `until`."""

    kind: Literal["snooze"] = "snooze"
    until: AwareDatetime


class Hold(CommandBase):
    kind: Literal["hold"] = "hold"
    reason: Text
    by_admin: bool = False


class Release(CommandBase):
    kind: Literal["release"] = "release"
    by_admin: bool = False


class Recopy(CommandBase):
    """`outputs retry`: copy the outputs of a `copy_back_failed` attempt again, outside the attempt."""

    kind: Literal["recopy"] = "recopy"


class Delete(CommandBase):
    kind: Literal["delete"] = "delete"


class UpstreamDone(CommandBase):
    """The steps before this one succeeded (the pipeline's own decision)."""

    kind: Literal["upstream_done"] = "upstream_done"


class UpstreamFailed(CommandBase):
    """A step before this one did not succeed: it cannot be reached."""

    kind: Literal["upstream_failed"] = "upstream_failed"
    step: Text


class Reset(Frozen):
    """Not asked by anybody and of no table: `reset` makes it a new version of a record. `backup_at`: the record may
    have been taken back to this instant."""

    kind: Literal["reset"] = "reset"
    epoch: int
    backup_at: AwareDatetime | None = None


AnyCommand = Stop | Pause | Resume | Retry | Snooze | Hold | Release | Recopy | Delete | UpstreamDone | UpstreamFailed
AnyInput = AnyFact | AnyCommand
INPUT: TypeAdapter[AnyInput] = TypeAdapter(Annotated[AnyInput, Field(discriminator="kind")])
