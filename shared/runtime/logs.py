"""Structured logs: one line per record, JSON or readable text, with the secrets of the settings blotted out."""

import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

import orjson
from opentelemetry import trace

_SHORTEST_SECRET: Final = 4  # blotting out shorter ones would spoil words, and by that show what they are


class Log:
    """A logger whose records carry fields: `log.info("batch handled", consumer="api", count=20)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """For someone who reads along while looking for a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something an operator wants to know happened: counts and durations, never one line per message."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something is wrong and is being dealt with."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, *, error: BaseException | None = None, **fields: Any) -> None:
        """Something is wrong and stays so until somebody acts; with `error`, its traceback is kept."""
        self._write(logging.ERROR, event, fields, error)

    def _write(self, level: int, event: str, fields: dict[str, Any], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=error)


class _Formatter(logging.Formatter):
    def __init__(self, service: str, shape: Literal["text", "json"], secrets: Sequence[str]) -> None:
        super().__init__()
        self._service = service
        self._json = shape == "json"
        self._secrets = [secret for secret in secrets if len(secret) >= _SHORTEST_SECRET]

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the message holds."""
        fields: dict[str, Any] = dict(getattr(record, "fields", {}))
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            fields["trace_id"] = f"{span.trace_id:032x}"
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = self._as_json(record, at, fields) if self._json else self._as_text(record, at, fields)
        for secret in self._secrets:
            line = line.replace(secret, "***")
        return line

    def _as_json(self, record: logging.LogRecord, at: str, fields: dict[str, Any]) -> str:
        head = {"at": at, "level": record.levelname, "service": self._service, "event": record.getMessage()}
        if record.name != "tidegate":
            head["logger"] = record.name
        return orjson.dumps(head | fields, default=str, option=orjson.OPT_NON_STR_KEYS).decode()

    def _as_text(self, record: logging.LogRecord, at: str, fields: dict[str, Any]) -> str:
        tail = "".join(f" {name}={_word(value)}" for name, value in fields.items())
        event = record.getMessage().replace("\n", "\\n")
        return f"{at} {record.levelname:<7} {self._service}: {event}{tail}"


def _word(value: Any) -> str:
    text = str(value)
    plain = text and not any(character in text for character in ' "=\n\r')
    return text if plain else orjson.dumps(text).decode()


def configure(service: str, level: str, shape: Literal["text", "json"], secrets: Sequence[str] = ()) -> None:
    """Send all records of this process to stderr; those of libraries from WARNING on."""
    root = logging.getLogger()
    for former in [handler for handler in root.handlers if isinstance(handler.formatter, _Formatter)]:
        root.removeHandler(former)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(service, shape, secrets))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("tidegate").setLevel(level)
