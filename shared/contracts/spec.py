"""What a person submits: the spec of a job, immutable and known by its digest."""

import hashlib
import json
import re
from typing import Annotated, Final, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from shared.contracts.given import Name
from shared.contracts.snapshot import shown
from shared.lifecycle.record import Resources, Signal, Signals

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PROJECT: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_NOT_UTF8: Final = "is not UTF-8 text, which a spec cannot carry: put such bytes into a file"
MAX_TIME_LIMIT_SECONDS: Final = 10 * 365 * 86_400
MAX_ARGUMENTS: Final = 4096
MAX_SPEC_BYTES: Final = 48 * 1024
MAX_STEPS: Final = 20
"""Steps of a pipeline."""
_LATER: Final[dict[str, object]] = {
    "warning_signal": None,
    "warning_seconds": 60,
    "stop_grace_seconds": None,
    "checkpoint_signal": "TERM",
    "checkpoint_grace_seconds": None,
}
"""Fields that came after the first specs were stored, with their defaults: they leave the digests of those alone."""


class JobSpec(BaseModel):
    """Command, environment, resources, inputs and outputs. Unknown fields are refused: a typo is not dropped silently.

    `inputs` are paths inside the submitted directory, `outputs` patterns relative to the job's working directory.
    `warning_signal` is sent `warning_seconds` before the time limit; a pause sends `checkpoint_signal`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] = Field(min_length=1, max_length=MAX_ARGUMENTS)
    env: dict[str, str] = Field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    image: str | None = None
    coretype: str = "local"
    region: str | None = None
    gpus: StrictInt = Field(default=0, ge=0, le=100_000)
    nodes: StrictInt = Field(default=1, ge=1, le=10_000)
    time_limit_seconds: StrictInt | None = Field(default=None, ge=1, le=MAX_TIME_LIMIT_SECONDS)
    warning_signal: Signal | None = None
    warning_seconds: StrictInt = Field(default=60, ge=1, le=86_400)
    stop_grace_seconds: StrictInt | None = Field(default=None, ge=0, le=86_400)
    checkpoint_signal: Signal = "TERM"
    checkpoint_grace_seconds: StrictInt | None = Field(default=None, ge=0, le=86_400)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    expect: tuple[str, ...] = ()
    snapshot: str | None = None

    @field_validator("command", "secrets", "inputs", "outputs", "expect")
    @classmethod
    def _texts_are_utf8(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            if not _is_utf8(text):
                raise ValueError(f"{shown(text)} {_NOT_UTF8}")
        return value

    @field_validator("command")
    @classmethod
    def _command_has_a_program(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value[0].strip():
            raise ValueError("the command's first word, the program, is empty")
        if any("\0" in word for word in value):
            raise ValueError("a word of the command holds a NUL byte, which no program can be given")
        return value

    @field_validator("env")
    @classmethod
    def _env_names_are_valid(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _ENV_NAME.fullmatch(name):
                raise ValueError(
                    f"{name!r} is not a valid environment name: use letters, digits and _, not first a digit"
                )
            if not _is_utf8(text):
                raise ValueError(f"the value of {name} {_NOT_UTF8}")
            if "\0" in text:
                raise ValueError(f"the value of {name} holds a NUL byte, which no environment can hold")
        return value

    @field_validator("snapshot")
    @classmethod
    def _snapshot_is_a_digest(cls, value: str | None) -> str | None:
        if value is not None and not _DIGEST.fullmatch(value):
            raise ValueError(f"{value!r} is not a snapshot: give sha256: and 64 hexadecimal digits")
        return value

    @field_validator("inputs", "outputs")
    @classmethod
    def _paths_stay_inside(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if not path:
                raise ValueError("an empty path was given; give one relative to the job's directory")
            if "\0" in path:
                raise ValueError(f"{shown(path)} holds a NUL character, which no path can: take it out")
            if path.startswith("/") or ".." in path.split("/"):
                raise ValueError(
                    f"{shown(path)} leads out of the job's directory: give a path relative to it, without .."
                )
        return value

    @model_validator(mode="after")
    def _a_warning_comes_before_a_limit(self) -> Self:
        """One that could never be sent, or only at the start, is refused."""
        limit = self.time_limit_seconds
        if self.warning_signal is not None and limit is None:
            raise ValueError(
                "a warning signal was given without a time limit: give the time limit that it comes before"
            )
        if self.warning_signal is not None and limit is not None and self.warning_seconds >= limit:
            said = f"the warning was asked for {self.warning_seconds} s before the end, and the time limit is {limit} s"
            raise ValueError(f"{said}: ask for a later warning, or a longer limit")
        return self

    def digest(self) -> str:
        """sha256 of the canonical JSON: equal specs have equal digests. Later fields count only where they are set."""
        fields = self.model_dump(mode="json")
        fields = {name: value for name, value in fields.items() if name not in _LATER or value != _LATER[name]}
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()

    def resources(self) -> Resources:
        """What the gatekeeper and the launcher need to know of it."""
        return Resources(
            coretype=self.coretype,
            region=self.region,
            gpus=self.gpus,
            nodes=self.nodes,
            time_limit_seconds=self.time_limit_seconds,
        )

    def signals(self) -> Signals:
        """How its command is asked to end, or to save its state."""
        return Signals(
            stop_grace_seconds=self.stop_grace_seconds,
            checkpoint_signal=self.checkpoint_signal,
            checkpoint_grace_seconds=self.checkpoint_grace_seconds,
        )

    def without_env_values(self) -> Self:
        """The spec as it may be shown in logs: names of variables, not their values."""
        return self.model_copy(update={"env": dict.fromkeys(self.env, "…")})


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_project(value: str) -> str:
    if not _PROJECT.fullmatch(value):
        raise ValueError(f"{shown(value)} was given; a project is 1 to 40 of a-z, 0-9 and -, not first a -")
    return value


Project = Annotated[
    str, AfterValidator(_is_project), WithJsonSchema({"type": "string", "pattern": f"^{_PROJECT.pattern}$"})
]


class SubmitRequest(BaseModel):
    """One job to submit (`POST /v1/jobs`). `retries`: automatic ones for its own failures; None: the deployment's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spec: JobSpec
    name: Name | None = None
    project: Project = "default"
    priority: StrictInt = Field(default=0, ge=-100, le=100)
    retries: StrictInt | None = Field(default=None, ge=0, le=100)


class PipelineRequest(BaseModel):
    """Jobs to run one after the other (`POST /v1/pipelines`). `project` is that of the steps that name none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name | None = None
    project: Project | None = None
    steps: tuple[SubmitRequest, ...] = Field(min_length=1, max_length=MAX_STEPS)

    @field_validator("steps")
    @classmethod
    def _names_differ(cls, value: tuple[SubmitRequest, ...]) -> tuple[SubmitRequest, ...]:
        names = [step.name for step in value if step.name is not None]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two steps are named {shown(name)}: give each a name of its own")
        return value
