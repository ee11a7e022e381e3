"""One frozen settings object per service, read from the environment once.

Every field `x` is the variable `TIDEGATE_X`, or `TIDEGATE_X_FILE` naming a file that holds the value.
"""

import os
import socket
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from shared.runtime.errors import SettingsError

PREFIX = "TIDEGATE_"


class Settings(BaseModel):
    """Fields read from the environment; `load` reads them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """Read the settings, or raise `SettingsError` with one sentence per wrong or missing variable."""
        given: dict[str, str] = {}
        problems: list[str] = []
        for field in cls.model_fields:
            try:
                value = _raw_value(PREFIX + field.upper(), environ)
            except SettingsError as problem:
                problems.append(str(problem))
                continue
            if value is not None:
                given[field] = value
        values = {field: _parsed(cls.model_fields[field], value) for field, value in given.items()}
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            named = {
                problem.split(":", 1)[0].removeprefix(PREFIX).removesuffix("_FILE").lower() for problem in problems
            }
            details = [detail for detail in error.errors(include_url=False) if str(detail["loc"][0]) not in named]
            problems.extend(_sentence(cls.model_fields, detail, given, environ) for detail in details)
        if problems:
            raise SettingsError("\n".join(problems))
        return settings

    def secrets(self) -> list[str]:
        """The values that no log line may hold."""
        values = (getattr(self, field) for field in type(self).model_fields)
        return [value.get_secret_value() for value in values if isinstance(value, SecretStr)]


class BrokerSettings(Settings):
    """A login at NATS."""

    nats_url: str
    nats_user: str
    nats_password: SecretStr


class DatabaseSettings(Settings):
    """A login at PostgreSQL."""

    database_url: SecretStr


class ServiceSettings(DatabaseSettings, BrokerSettings):
    """The settings that every service has; a service adds its own in a subclass."""

    health_port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Where /healthz, /readyz and /metrics answer on 127.0.0.1; 0 picks a free port, which the log names."""
    replica: str = Field(default_factory=socket.gethostname, min_length=1)
    """The name of this replica among those of its service: who holds a lease. One that starts takes over at once what
    an earlier one of the same name left, so two that run at a time never share one."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["text", "json"] = "text"


def _raw_value(name: str, environ: Mapping[str, str]) -> str | None:
    """The text of the variable or of the file that `<name>_FILE` names; None where neither is set."""
    path = environ.get(f"{name}_FILE")
    if path is None:
        return environ.get(name)
    if name in environ:
        raise SettingsError(f"{name}: {name} and {name}_FILE are both set; keep one of them")
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"{name}_FILE: {path!r} cannot be read ({error}); name a readable text file that holds the value"
        ) from error


def _parsed(field: FieldInfo, value: str) -> Any:
    """JSON text for a list, mapping or model, the text itself for everything else."""
    if not _is_structured(field.annotation):
        return value
    import orjson

    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value  # validation says what the field needs


def _is_structured(annotation: Any) -> bool:
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType, Annotated):
        return any(_is_structured(part) for part in get_args(annotation))
    kind = origin or annotation
    return isinstance(kind, type) and issubclass(kind, (list, tuple, dict, set, frozenset, BaseModel))


def _sentence(
    fields: Mapping[str, FieldInfo], detail: ErrorDetails, given: Mapping[str, str], environ: Mapping[str, str]
) -> str:
    """What was given (if it may be shown), what is right, what to do."""
    field, *inner = (str(part) for part in detail["loc"])
    name = PREFIX + field.upper()
    if field not in given:
        return f"{name}: not set; set it, or {name}_FILE to the path of a file that holds it"
    annotation = fields[field].annotation
    hidden = "Secret" in repr(annotation) or _is_structured(annotation) or f"{name}_FILE" in environ
    shown = "the value given (not shown)" if hidden else repr(given[field])
    where = f" (at {'.'.join(inner)})" if inner else ""
    right = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{name}: {shown} is not right{where}: {right}"
