"""Validation errors as sentences: the field, what was given, what is right."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import BaseModel

from services.api.problems import Problem
from shared.contracts.spec import JobSpec, SubmitRequest

_SHOWN: Final = 80
_LISTED: Final = 20
_SECRET_PLACES: Final = frozenset({"env"})
_MODELS: Final[Mapping[str, type[BaseModel]]] = {"spec": JobSpec, "jobs": SubmitRequest, "": SubmitRequest}


def invalid(errors: Sequence[Mapping[str, Any]]) -> Problem:
    """The problem that lists what is wrong; the detail is the first sentence."""
    listed = [{"field": place(error["loc"]), "message": sentence(error)} for error in errors[:_LISTED]]
    if any(error["type"] == "json_invalid" for error in errors):
        return Problem("malformed", listed[0]["message"], errors=listed)
    more = f" (and {len(errors) - 1} more, see errors)" if len(errors) > 1 else ""
    return Problem("invalid", listed[0]["message"] + more, errors=listed)


def sentence(error: Mapping[str, Any]) -> str:
    """What is wrong with one field."""
    where = place(error["loc"])
    given = error.get("input")
    match error["type"]:
        case "json_invalid":
            reason = error.get("ctx", {}).get("error", "it cannot be parsed")
            return f"the body is no JSON: {reason} at character {error['loc'][-1]}; send one JSON object"
        case "missing":
            if where == "body":
                return "the body is missing: send one JSON object with Content-Type application/json"
            return f"{where} is missing: it has to be given"
        case "extra_forbidden":
            return _unknown_field(error["loc"], where)
        case "value_error":
            return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    right = error["msg"][0].lower() + error["msg"][1:].replace("Input should", "it should")
    right = right.replace("input should", "it should")
    return f"{where}: {_shown(error['loc'], given)} was given; {right}"


def place(loc: Sequence[str | int]) -> str:
    """The field's path as a person writes it: `jobs[3].spec.gpus`."""
    parts = list(loc)
    if len(parts) > 1 and parts[0] in ("body", "query", "path", "header"):
        parts = parts[1:]
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


def _unknown_field(loc: Sequence[str | int], where: str) -> str:
    parents = [str(part) for part in loc[:-1] if part not in ("body",) and not isinstance(part, int)]
    model = _MODELS.get(parents[-1] if parents else "")
    if model is None:
        return f"{where} is not a field that is known here: take it out"
    known = sorted(model.model_fields)
    near = get_close_matches(str(loc[-1]), known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"{where} is not a field that is known here: {hint}"


def _shown(loc: Sequence[str | int], given: object) -> str:
    if _SECRET_PLACES.intersection(str(part) for part in loc):
        return "a value (not shown)"
    if isinstance(given, dict | list):
        return f"{'an object' if isinstance(given, dict) else 'a list'} with {len(given)} entries"
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
