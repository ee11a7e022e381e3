"""The subjects as an AsyncAPI 3.0 document, drawn from the contracts: `python -m shared.runtime.asyncapi`."""

import json
import sys
from collections.abc import Iterator
from importlib.metadata import version
from inspect import getdoc
from typing import Any, Final, get_args

from faststream.nats import NatsBroker
from faststream.specification import AsyncAPI
from pydantic import BaseModel

from shared.contracts.events import JobEvent
from shared.contracts.queries import Capacity
from shared.contracts.subjects import FACT_KINDS, JOB_EVENTS, cluster_subject, fact_subject, job_subject, usage_subject
from shared.contracts.usage import UsageLine
from shared.lifecycle.facts import AnyFact

_DESCRIPTION: Final = (
    "What Tidegate's services tell each other and everybody who may listen. Job events are CloudEvents 1.0 in binary "
    "mode: their attributes are the message's ce- headers. Each message may come more than once."
)


def document() -> dict[str, Any]:
    """Every subject that a stream stores, with the model of its body."""
    broker = NatsBroker("nats://127.0.0.1:4222")
    for subject, model in _subjects():
        broker.publisher(subject, title=subject, description=getdoc(model), schema=model)
    described = AsyncAPI(broker, title="Tidegate", version=version("tidegate"), description=_DESCRIPTION)
    drawn: dict[str, Any] = described.to_specification().to_jsonable()
    return drawn


def _subjects() -> Iterator[tuple[str, type[BaseModel]]]:
    for event in JOB_EVENTS:
        yield job_subject("{tenant}", event), JobEvent
    models = {model.model_fields["kind"].default: model for model in get_args(AnyFact)}
    for service, kinds in FACT_KINDS.items():
        for kind in kinds:
            yield fact_subject(service, kind), models[kind]
    yield cluster_subject("{cluster}", "capacity"), Capacity
    yield usage_subject("{tenant}", "segment"), UsageLine


if __name__ == "__main__":
    json.dump(document(), sys.stdout, indent=2)
    sys.stdout.write("\n")
