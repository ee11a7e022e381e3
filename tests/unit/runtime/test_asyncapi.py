"""The AsyncAPI document covers what crosses the broker, and nothing is left to be looked up elsewhere."""

import json
import re

from shared.contracts.subjects import FACT_KINDS, JOB_EVENTS
from shared.runtime.asyncapi import document


def test_every_stored_subject_has_a_channel_with_a_model() -> None:
    drawn = document()
    assert drawn["asyncapi"] == "3.0.0"
    addresses = {channel["address"] for channel in drawn["channels"].values()}
    assert addresses == {
        *(f"jobs.v1.{{tenant}}.{event}" for event in JOB_EVENTS),
        *(f"facts.v1.{service}.{kind}" for service, kinds in FACT_KINDS.items() for kind in kinds),
        "clusters.v1.{cluster}.capacity",
        "usage.v1.{tenant}.segment",
    }
    for message in drawn["components"]["messages"].values():
        assert message["payload"]["$ref"].startswith("#/components/schemas/")


def test_every_schema_that_is_named_is_there() -> None:
    drawn = document()
    named = set(re.findall(r'"#/components/schemas/([^"/]+)"', json.dumps(drawn)))
    assert named <= set(drawn["components"]["schemas"])
