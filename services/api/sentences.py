"""Validation errors as sentences: the field, what was given, what is right. Nothing of the validator's own wording."""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import BaseModel

from services.api.problems import Problem

_SHOWN: Final = 80
_LISTED: Final = 20
_SECRET_PLACES: Final = frozenset({"env"})
_WHOLE: Final = "a whole number"
_TRUTH: Final = "true or false"
_LIST: Final = "a list"
_OBJECT: Final = "a JSON object"
_OTHER: Final = "something else: GET /v1/openapi.json describes it"

Limits = Mapping[str, Any]
RIGHT: Final[Mapping[str, Callable[[Limits], str]]] = {
    "int_type": lambda _: f"{_WHOLE}, without quotes",
    "int_parsing": lambda _: _WHOLE,
    "int_parsing_size": lambda _: f"{_WHOLE} of fewer digits",
    "int_from_float": lambda _: _WHOLE,
    "bool_type": lambda _: f"{_TRUTH}, without quotes",
    "bool_parsing": lambda _: _TRUTH,
    "string_type": lambda _: "a text, in quotes",
    "string_too_short": lambda limits: f"a text of at least {_count(limits['min_length'], 'character')}",
    "string_too_long": lambda limits: f"a text of at most {_count(limits['max_length'], 'character')}",
    "list_type": lambda _: _LIST,
    "tuple_type": lambda _: _LIST,
    "too_short": lambda limits: f"a list of at least {_count(limits['min_length'], 'entry')}",
    "too_long": lambda limits: f"a list of at most {_count(limits['max_length'], 'entry')}",
    "dict_type": lambda _: _OBJECT,
    "model_type": lambda _: _OBJECT,
    "model_attributes_type": lambda _: _OBJECT,
    "greater_than_equal": lambda limits: f"{limits['ge']} or more",
    "less_than_equal": lambda limits: f"{limits['le']} or less",
    "literal_error": lambda limits: f"one of {limits['expected']}",
}
"""What is right instead, by the validator's name for what is wrong."""


def invalid(errors: Sequence[Mapping[str, Any]], body: object = None) -> Problem:
    """The problem that lists what is wrong; the detail is the first sentence. `body` is the type of the route's body,
    whose fields are named to whoever gave another one."""
    listed = [{"field": place(error["loc"]), "message": sentence(error, body)} for error in errors[:_LISTED]]
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem("malformed", listed[0]["message"], errors=listed)
    more = f" (and {len(errors) - 1} more, see errors)" if len(errors) > 1 else ""
    return Problem("invalid", listed[0]["message"] + more, errors=listed)


def sentence(error: Mapping[str, Any], body: object = None) -> str:
    """What is wrong with one field."""
    where = place(error["loc"])
    match error["type"]:
        case "json_invalid":
            reason = error.get("ctx", {}).get("error", "it cannot be parsed")
            return f"the body is no JSON: {reason} at character {error['loc'][-1]}; send one JSON object"
        case "missing":
            if where == "body":
                return "the body is missing: send one JSON object with Content-Type application/json"
            return f"{where} is missing: it has to be given"
        case "extra_forbidden":
            return _unknown_field(error["loc"], where, body)
        case "value_error":
            return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    known = RIGHT.get(error["type"])
    right = _OTHER if known is None else known(error.get("ctx", {}))
    return f"{where}: {_shown(error['loc'], error.get('input'))} was given; it is {right}"


def place(loc: Sequence[str | int]) -> str:
    """The field's path as a person writes it: `jobs[3].spec.gpus`."""
    parts = list(loc)
    if len(parts) > 1 and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def unknown(what: str, given: str, known: Sequence[str]) -> str:
    """The sentence about a name that is not among those known."""
    if not known:
        return f"{given} is not a {what} that is known here: take it out"
    near = get_close_matches(given.rpartition(".")[2].strip("'"), known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    return f"{given} is not a {what} that is known here: {hint}"


def _unknown_field(loc: Sequence[str | int], where: str, body: object) -> str:
    model = _model(body)
    for part in loc[1:-1]:
        if model is not None and isinstance(part, str):
            field = model.model_fields.get(part)
            model = None if field is None else _model(field.annotation)
    shown = where if len(where) <= _SHOWN else f"{where[:_SHOWN]}…"
    return unknown("field", shown, [] if model is None else list(model.model_fields))


def _model(annotation: object) -> type[BaseModel] | None:
    """The model in a field's type: itself, or what it is a list of, or what it may be besides None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model(part)) is not None), None)


def _count(number: int, what: str) -> str:
    return f"{number} {what if number == 1 else what.replace('entry', 'entrie') + 's'}"


def _shown(loc: Sequence[str | int], given: object) -> str:
    if _SECRET_PLACES.intersection(str(part) for part in loc):
        return "a value (not shown)"
    if isinstance(given, dict | list):
        return f"{'an object' if isinstance(given, dict) else 'a list'} with {_count(len(given), 'entry')}"
    text = json.dumps(given) if given is None or isinstance(given, bool) else repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
