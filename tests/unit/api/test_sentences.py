"""Validation errors in our words: the field, what was given, what is right."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from services.api.routes.admin import NewToken
from services.api.routes.jobs import Batch
from services.api.routes.usage import Limits
from services.api.routes.wishes import StopBody
from services.api.sentences import RIGHT, invalid
from shared.contracts.spec import MAX_ARGUMENTS, SubmitRequest

Case = tuple[type[BaseModel], Any, str]


def _spec(**fields: Any) -> dict[str, Any]:
    return {"spec": {"command": ["true"], **fields}}


SAID: dict[str, Case] = {
    "no words": (
        SubmitRequest,
        _spec(command=[]),
        "spec.command: a list with 0 entries was given; it is a list of at least 1 entry",
    ),
    "too many words": (
        SubmitRequest,
        _spec(command=["x"] * (MAX_ARGUMENTS + 1)),
        "spec.command: a list with 4097 entries was given; it is a list of at most 4096 entries",
    ),
    "a text for a list": (SubmitRequest, _spec(outputs="*"), "spec.outputs: '*' was given; it is a list"),
    "a number for a text": (SubmitRequest, _spec(inputs=[1]), "spec.inputs[0]: 1 was given; it is a text, in quotes"),
    "a list for an object": (
        SubmitRequest,
        _spec(env=["A=1"]),
        "spec.env: a value (not shown) was given; it is a JSON object",
    ),
    "a number for a spec": (SubmitRequest, {"spec": 3}, "spec: 3 was given; it is a JSON object"),
    "a truth for a number": (
        SubmitRequest,
        _spec(gpus=True),
        "spec.gpus: true was given; it is a whole number, without quotes",
    ),
    "a decimal for a number": (
        SubmitRequest,
        _spec(gpus=1.5),
        "spec.gpus: 1.5 was given; it is a whole number, without quotes",
    ),
    "a number for a truth": (StopBody, {"force": 1}, "force: 1 was given; it is true or false, without quotes"),
    "too low": (Limits, {"gpus": -1}, "gpus: -1 was given; it is 0 or more"),
    "too high": (SubmitRequest, {**_spec(), "priority": 101}, "priority: 101 was given; it is 100 or less"),
    "a long text": (
        NewToken,
        {"tenant": "t" * 100, "user": "rin"},
        f"tenant: '{'t' * 79}… was given; it is a text of at most 40 characters",
    ),
    "an empty text": (
        NewToken,
        {"tenant": "", "user": "rin"},
        "tenant: '' was given; it is a text of at least 1 character",
    ),
    "none of the words": (
        NewToken,
        {"tenant": "acme", "user": "rin", "role": "root"},
        "role: 'root' was given; it is one of 'user' or 'admin'",
    ),
    "a project": (
        SubmitRequest,
        {**_spec(), "project": "-"},
        "project: '-' was given; a project is 1 to 40 of a-z, 0-9 and -, not first a -",
    ),
    "a field of a job in a batch": (
        Batch,
        {"jobs": [_spec(gpu=1)]},
        "jobs[0].spec.gpu is not a field that is known here: did you mean gpus?",
    ),
    "a field of a quota": (
        Limits,
        {"memory": 1},
        "memory is not a field that is known here: known are gpus, slots",
    ),
}


@pytest.mark.parametrize(("model", "given", "said"), [pytest.param(*case, id=name) for name, case in SAID.items()])
def test_says_what_was_given_and_what_is_right(model: type[BaseModel], given: Any, said: str) -> None:
    with pytest.raises(ValidationError) as wrong:
        model.model_validate(given)
    errors = [{**error, "loc": ("body", *error["loc"])} for error in wrong.value.errors()]
    assert invalid(errors, model).detail == said


def test_an_error_of_a_kind_that_has_no_words_shows_none_of_the_validators() -> None:
    error = {"type": "date_parsing", "loc": ("query", "since"), "input": "x", "msg": "Input should be a valid date"}
    assert invalid([error]).detail == "since: 'x' was given; it is something else: GET /v1/openapi.json describes it"


def test_no_words_are_the_validators() -> None:
    limits = dict.fromkeys(("min_length", "max_length", "ge", "le", "expected"), 1)
    for words in RIGHT.values():
        for inside in ("should", "valid", "tuple", "dictionary", "pattern", "input", "integer"):
            assert inside not in words(limits)
