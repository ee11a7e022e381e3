"""What a person asks for at last, so that everything comes to its end: the rest is left to end by itself."""

import random
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from tests.chaos.made import Made
from tests.chaos.person import Ask


def last_wish(made: Made, row: Mapping[str, Any], rng: random.Random) -> Ask | None:
    """What a job needs to go on or to end: whoever is paused is resumed or stopped, whoever is held is released.

    A workstation that nobody uses is left to the policy, unless that was put off, one of a short life to its end."""
    state, job = row["state"], row["id"]
    if state == "PAUSED":
        was_suspended = row["end_reason"] == "paused_by_policy"
        if was_suspended or made.kind == "busy" or (made.kind != "idle" and rng.random() < 0.3):
            return Ask("stop", job, rng.random() < 0.3)
        return Ask("resume", job, row["end_reason"] == "paused_by_admin" or rng.random() < 0.3)
    if state == "QUEUED" and row["hold"] is not None:
        return Ask("release", job, row["hold"] == "true" or rng.random() < 0.3)
    if state == "RUNNING" and row["desired"] == "run" and _goes_on_for_ever(made, row):
        return Ask("stop", job, rng.random() < 0.3)
    return None


def _goes_on_for_ever(made: Made, row: Mapping[str, Any]) -> bool:
    if made.kind == "idle":
        until = row["snoozed_until"]
        return until is not None and datetime.fromisoformat(until).timestamp() > time.time()
    return made.kind == "busy"
