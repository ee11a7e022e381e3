"""What comes with a wish: the bodies of commands for jobs and pipelines."""

from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, WithJsonSchema

from shared.contracts.given import printable

_LONGEST_REASON: Final = 500

Reason = Annotated[
    str,
    AfterValidator(printable("a reason", _LONGEST_REASON)),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": _LONGEST_REASON}),
]


class _Body(BaseModel):
    """Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class StopBody(_Body):
    """How to stop: `force` kills at once, `grace_seconds` lie between the polite signal and the kill."""

    force: StrictBool = False
    grace_seconds: StrictInt | None = Field(default=None, ge=0, le=86_400)


class PauseBody(_Body):
    """Why it is paused."""

    reason: Reason | None = None


class RetryBody(_Body):
    """`force`: although nobody has proven that a lost attempt is gone."""

    force: StrictBool = False


class HoldBody(_Body):
    """Why it is held."""

    reason: Reason = "held by hand"


class NothingBody(_Body):
    """Nothing to say."""
