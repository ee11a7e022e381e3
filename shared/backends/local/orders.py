"""A launch as the host was asked for it, checked before anything is done about it."""

from __future__ import annotations

import signal
from collections.abc import Mapping

from shared.backends.local import layout, names

GPUS_MAX = 1024
# What an order of an earlier launcher, which does not say, means.
LIMIT_GRACE_SECONDS, WARNING_SECONDS = 30, 60
SECONDS_MAX = 2**31


class OrderError(ValueError):
    """The order cannot be carried out as given; the text says what is right."""


class Order:
    """What to run, for whom, where. The values of `env` live in memory only: they may hold secrets."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self.submission = _text(fields, "submission")
        parsed = names.parse_submission_name(self.submission)
        if parsed is None:
            raise OrderError(f"{self.submission!r} is not a submission's name: make it with submission_name()")
        _, self.job, self.attempt, _ = parsed
        self.tenant = _text(fields, "tenant")
        self.directory = _text(fields, "directory")
        for what, name in (("tenant", self.tenant), ("directory", self.directory)):
            if not names.is_name(name):
                raise OrderError(f"{what} {name!r} must be one name of letters, digits, '-', '_' and '.', not a path")
        self.command = _texts(fields, "command")
        if not self.command or not self.command[0]:
            raise OrderError("the command is empty: give the program and its arguments")
        self.environment = _environment(fields)
        self.run = _text(fields, "run")
        self.gpus = _number(fields, "gpus", GPUS_MAX) or 0
        self.time_limit_seconds = _number(fields, "time_limit_seconds", SECONDS_MAX)
        self.stop_grace_seconds = _seconds(fields, "stop_grace_seconds", LIMIT_GRACE_SECONDS)
        self.warning_signal = _number(fields, "warning_signal", signal.NSIG - 1)
        self.warning_seconds = _seconds(fields, "warning_seconds", WARNING_SECONDS)
        self.resumed = fields.get("resumed") is True
        self.workstation = fields.get("workstation") is True
        self.not_after_ms = _number(fields, "not_after_ms", 2**53)

    def attempt_directory(self, root: str) -> str:
        """Where this attempt's claim, logs and staged files are."""
        return layout.attempt_directory(root, self.tenant, self.job, self.attempt)

    def as_record(self) -> dict[str, object]:
        """All of it but the values of the environment."""
        return {
            "submission": self.submission,
            "job": self.job,
            "run": self.run,
            "attempt": self.attempt,
            "tenant": self.tenant,
            "directory": self.directory,
            "command": self.command,
            "env_names": sorted(self.environment),
            "gpus": self.gpus,
            "time_limit_seconds": self.time_limit_seconds,
        }


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or "\0" in value:
        raise OrderError(f"{name} must be a text without NUL characters, not {value!r}")
    return value


def _texts(fields: Mapping[str, object], name: str) -> list[str]:
    value = fields.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) and "\0" not in item for item in value):
        raise OrderError(f"{name} must be a list of texts without NUL characters, not {value!r}")
    return list(value)


def _environment(fields: Mapping[str, object]) -> dict[str, str]:
    value = fields.get("env")
    if not isinstance(value, dict):
        raise OrderError("env must be an object of names and values")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name:
            raise OrderError(f"{name!r} cannot name an environment variable: it must not be empty or hold '=' or NUL")
        if not isinstance(text, str) or "\0" in text:
            raise OrderError(f"the value of environment variable {name} must be a text without NUL characters")
    return dict(value)


def _number(fields: Mapping[str, object], name: str, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise OrderError(f"{name} must be a whole number from 0 to {most}, not {value!r}")
    return value


def _seconds(fields: Mapping[str, object], name: str, otherwise: float) -> float:
    value = fields.get(name)
    if value is None:
        return otherwise
    if type(value) not in (int, float) or not isinstance(value, (int, float)) or not 0 <= value <= SECONDS_MAX:
        raise OrderError(f"{name} must be a number of seconds from 0 to {SECONDS_MAX}, not {value!r}")
    return value
