"""The checked-in example of every contract model: what stands in it is what crosses the wire."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from shared.contracts.events import JobEvent, decode_event, encode_event
from shared.contracts.facts import decode_fact, encode_fact
from shared.contracts.spec import JobSpec, PipelineRequest, SubmitRequest
from shared.contracts.subjects import FACT_KINDS
from shared.contracts.workstations import WorkstationRequest
from shared.lifecycle.facts import FACT
from shared.lifecycle.inputs import INPUT
from tests.contract.models import models

EXAMPLES = Path(__file__).with_name("examples")
MODELS = models()
FROM_PEOPLE = (JobSpec, SubmitRequest, PipelineRequest, WorkstationRequest)
ON_THE_WIRE = [(name, model) for name, model in MODELS.items() if model not in (JobEvent, *FROM_PEOPLE)]
SENDERS = {kind: service for service, kinds in FACT_KINDS.items() for kind in kinds}


def example(name: str) -> bytes:
    return (EXAMPLES / f"{name}.v1.json").read_bytes()


def _cases(chosen: list[tuple[str, type[BaseModel]]]) -> list[Any]:
    return [pytest.param(name, model, id=name) for name, model in chosen]


def test_every_model_has_an_example_and_every_example_a_model() -> None:
    assert {path.name for path in EXAMPLES.iterdir()} == {f"{name}.v1.json" for name in MODELS}


@pytest.mark.parametrize(
    ("name", "model"), _cases([(name, model) for name, model in MODELS.items() if model is not JobEvent])
)
def test_an_example_reads_and_writes_as_the_same_json(name: str, model: type[BaseModel]) -> None:
    read = model.model_validate_json(example(name))
    assert json.loads(read.model_dump_json(exclude_none=True)) == json.loads(example(name))


@pytest.mark.parametrize(("name", "model"), _cases(list(MODELS.items())))
def test_an_example_shows_every_field(name: str, model: type[BaseModel]) -> None:
    """A field that is added, renamed or dropped changes the example on purpose."""
    left_out = {"shortened"} if model is JobEvent else set()
    assert set(json.loads(example(name))) | left_out == set(model.model_fields)


@pytest.mark.parametrize(("name", "model"), _cases(ON_THE_WIRE))
def test_unknown_fields_are_ignored_on_the_wire(name: str, model: type[BaseModel]) -> None:
    """So that versions n and n - 1 run side by side."""
    newer = json.loads(example(name)) | {"added_in_a_later_version": {"deep": [1]}}
    assert model.model_validate_json(json.dumps(newer)) == model.model_validate_json(example(name))


@pytest.mark.parametrize("kind", sorted(SENDERS))
def test_a_fact_travels_on_its_senders_subject(kind: str) -> None:
    fact = FACT.validate_json(example(f"fact-{kind.replace('_', '-')}"))
    wire = encode_fact(SENDERS[kind], fact)
    assert wire.subject == f"facts.v1.{SENDERS[kind]}.{kind}"
    assert wire.key == fact.job
    assert wire.msg_id == f"{SENDERS[kind]}/{fact.job}/1/{kind}/1.41"
    assert decode_fact(wire.subject, wire.body) == fact


@pytest.mark.parametrize("name", [name for name in MODELS if name.startswith(("fact-", "command-"))])
def test_every_input_is_known_again_by_its_kind(name: str) -> None:
    assert type(INPUT.validate_json(example(name))) is MODELS[name]


def test_the_example_of_a_job_event_is_what_is_published() -> None:
    """In it a requeue closed a segment and the next one began, in one change."""
    event = decode_event(example("job-event"))
    (closed,) = event.corrected
    assert (closed.attempt, closed.segment.ended, closed.segment.gpu_milliseconds) == (1, "requeued", 20_000)
    assert [(attempt, segment.key.restart) for attempt, segment in event.segments()] == [(1, 0), (1, 1)]
    again = encode_event(event.job, event.type, event.job.submitted_at)
    told_again = json.loads(again.body)
    assert told_again["job"] == json.loads(example("job-event"))["job"]


@pytest.mark.parametrize("part", ["event", "job", "attempt", "evidence"])
def test_unknown_fields_of_a_job_event_are_ignored(part: str) -> None:
    newer = json.loads(example("job-event"))
    attempt = newer["job"]["attempts"][0]
    {"event": newer, "job": newer["job"], "attempt": attempt, "evidence": attempt["evidence"][0]}[part]["new"] = 1
    assert decode_event(json.dumps(newer).encode()) == decode_event(example("job-event"))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"", "Invalid JSON", id="nothing"),
        pytest.param(b"\xff\xfe", "Invalid JSON", id="no text"),
        pytest.param(b"[]", "Input should be an object", id="a list"),
        pytest.param(b'{"type": "queued"}', "job", id="no job"),
        pytest.param(b'{"type": "queued", "job": {"attempts": []}}', "job.attempts", id="no attempt"),
    ],
)
def test_what_is_no_job_event_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        decode_event(body)


@pytest.mark.parametrize("name", ["job-spec", "submit-request"])
@pytest.mark.parametrize("typo", ["comand", "gpu", "timelimit"])
def test_unknown_fields_of_what_a_person_sends_are_refused(name: str, typo: str) -> None:
    given = json.loads(example(name)) | {typo: 1}
    with pytest.raises(ValidationError) as refused:
        MODELS[name].model_validate_json(json.dumps(given))
    (error,) = refused.value.errors()
    assert (error["type"], error["loc"]) == ("extra_forbidden", (typo,)), "the front door names the near field for it"
