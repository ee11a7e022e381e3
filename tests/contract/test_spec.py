"""The spec: what is refused says what was given, what is right and what to do; equal specs have equal digests."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from shared.contracts.spec import MAX_ARGUMENTS, JobSpec, SubmitRequest
from tests.contract.test_examples import example

LATER = ("warning_signal", "warning_seconds", "stop_grace_seconds", "checkpoint_signal", "checkpoint_grace_seconds")

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no command": ({"command": []}, "at least 1 item"),
    "an empty program": ({"command": ["  "]}, "the program, is empty"),
    "a NUL byte in a word": ({"command": ["a\0b"]}, "holds a NUL byte, which no program can be given"),
    "too many words": ({"command": ["a"] * (MAX_ARGUMENTS + 1)}, "at most 4096 items"),
    "a word that is no text": ({"command": ["\udcff"]}, r"'\\xff' is not UTF-8 text.*put such bytes into a file"),
    "half a character": ({"outputs": ["\ud800"]}, r"'\\ud800' is not UTF-8 text"),
    "a value that is no text": ({"env": {"A": "\ud800"}}, "the value of A is not UTF-8 text"),
    "a variable's name with a dash": ({"env": {"MY-VAR": "1"}}, "'MY-VAR' is not a valid environment name"),
    "a variable's name with a digit first": ({"env": {"1A": "1"}}, "not first a digit"),
    "a variable's value with a NUL byte": ({"env": {"A": "\0"}}, "the value of A holds a NUL byte"),
    "fewer than no GPUs": ({"gpus": -1}, "greater than or equal to 0"),
    "no nodes": ({"nodes": 0}, "greater than or equal to 1"),
    "a time limit of nothing": ({"time_limit_seconds": 0}, "greater than or equal to 1"),
    "GPUs as a truth": ({"gpus": True}, "valid integer"),
    "GPUs as a text": ({"gpus": "2"}, "valid integer"),
    "GPUs with a decimal point": ({"gpus": 2.0}, "valid integer"),
    "nodes as a text": ({"nodes": "1"}, "valid integer"),
    "a time limit as a text": ({"time_limit_seconds": "60"}, "valid integer"),
    "a time limit beyond what can be counted": ({"time_limit_seconds": 10**30}, "less than or equal to"),
    "a warning of no limit": ({"warning_signal": "USR1"}, "without a time limit: give the time limit"),
    "a warning at the start": (
        {"warning_signal": "USR1", "warning_seconds": 60, "time_limit_seconds": 60},
        "60 s before the end, and the time limit is 60 s: ask for a later warning, or a longer limit",
    ),
    "a warning by a signal that kills": ({"warning_signal": "KILL", "time_limit_seconds": 90}, "'TERM', 'INT'"),
    "a grace of less than nothing": ({"stop_grace_seconds": -1}, "greater than or equal to 0"),
    "a grace with a decimal point": ({"checkpoint_grace_seconds": 1.5}, "valid integer"),
    "an absolute input": ({"inputs": ["/etc/passwd"]}, "leads out of the job's directory: give a path relative to it"),
    "an output that climbs out": ({"outputs": ["a/../../b"]}, "leads out of the job's directory"),
    "an empty output": ({"outputs": [""]}, "an empty path was given; give one relative to the job's directory"),
    "an output with a NUL": ({"outputs": ["a\0b"]}, r"'a\\x00b' holds a NUL character, which no path can: take it out"),
    "a snapshot that is no digest": ({"snapshot": "latest"}, "give sha256: and 64 hexadecimal digits"),
}


@pytest.mark.parametrize(("given", "said"), [pytest.param(*case, id=name) for name, case in WRONG.items()])
def test_a_wrong_spec_is_refused_with_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate({"command": ["true"]} | given)


@pytest.mark.parametrize(
    "word", ["a b", "  two", "it's", '"q"', "$HOME", "-rf", "a;b", "a*b", "café", "tab\tx", "line\nbreak", "100%20"]
)
def test_a_word_of_any_characters_survives_the_wire(word: str) -> None:
    spec = JobSpec(command=("echo", word), outputs=(word.strip("."),))
    assert JobSpec.model_validate_json(spec.model_dump_json()) == spec


def test_equal_specs_have_equal_digests() -> None:
    one = JobSpec(command=("true",), env={"A": "1", "B": "2"})
    other = JobSpec.model_validate({"env": {"B": "2", "A": "1"}, "gpus": 0, "command": ["true"]})
    assert one.digest() == other.digest()
    assert one.digest() != JobSpec(command=("true",), env={"A": "1"}).digest()


def test_a_digest_never_changes_its_meaning() -> None:
    """It names specs that are stored: a new field must not move it where it is not given."""
    spec = JobSpec.model_validate_json(example("job-spec"))
    stored = {name: value for name, value in spec.model_dump().items() if name not in LATER}
    digest = JobSpec.model_validate(stored).digest()
    assert digest == "sha256:ae03bcb9a6bac29c1f511c44b5a7db1878f98e0bc99238127544cfcc8fea0314"


@pytest.mark.parametrize("field", LATER)
def test_a_later_field_that_is_given_makes_another_digest(field: str) -> None:
    spec = JobSpec.model_validate_json(example("job-spec"))
    stored = {name: value for name, value in spec.model_dump().items() if name not in LATER}
    given = {field: spec.model_dump()[field]}
    assert JobSpec.model_validate(stored | given).digest() != JobSpec.model_validate(stored).digest()


def test_what_is_shown_of_a_spec_holds_no_value_of_the_environment() -> None:
    spec = JobSpec(command=("true",), env={"TOKEN": "s3cret"})
    assert "s3cret" not in spec.without_env_values().model_dump_json()
    assert "TOKEN" in spec.without_env_values().env


def test_a_spec_says_what_the_cluster_needs_to_know() -> None:
    spec = JobSpec.model_validate_json(example("job-spec"))
    assert spec.resources().model_dump() == {
        "coretype": "local",
        "region": "eu-1",
        "gpus": 1,
        "nodes": 1,
        "time_limit_seconds": 3600,
    }


@pytest.mark.parametrize(
    ("given", "field"),
    [
        pytest.param({"name": ""}, "name", id="an empty name"),
        pytest.param({"name": " \t"}, "name", id="a name of blanks"),
        pytest.param({"name": "a\nb"}, "name", id="a name of two lines"),
        pytest.param({"name": "a\x1b[31mb"}, "name", id="a name that colours the terminal"),
        pytest.param({"name": "a\u202eb"}, "name", id="a name that turns the text around"),
        pytest.param({"name": "\ud800"}, "name", id="a name of half a character"),
        pytest.param({"name": "n" * 101}, "name", id="a name that is too long"),
        pytest.param({"project": "a\n"}, "project", id="a project with a line break"),
        pytest.param({"project": "Über"}, "project", id="a project of other letters"),
        pytest.param({"priority": 101}, "priority", id="a priority beyond the scale"),
        pytest.param({"priority": True}, "priority", id="a priority that is a truth"),
        pytest.param({"retries": -1}, "retries", id="fewer than no retries"),
        pytest.param({"retries": "three"}, "retries", id="retries as a word"),
        pytest.param({"retries": 1.5}, "retries", id="retries with a half"),
    ],
)
def test_a_wrong_request_names_the_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SubmitRequest.model_validate({"spec": {"command": ["true"]}} | given)
    (error,) = refused.value.errors()
    assert error["loc"] == (field,)
    assert "codec" not in error["msg"]


def test_a_name_may_hold_what_can_be_printed() -> None:
    for name in ("a b", "tréning №1", "実験", "n" * 100):
        assert SubmitRequest.model_validate({"spec": {"command": ["true"]}, "name": name}).name == name


def test_the_example_is_the_whole_of_a_request() -> None:
    assert SubmitRequest.model_validate_json(example("submit-request")).model_dump(mode="json") == json.loads(
        example("submit-request")
    )
