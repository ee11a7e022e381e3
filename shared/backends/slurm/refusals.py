"""What Slurm's commands say when they do not do what was asked: slurm_errno.c's sentences, as a table.

Only these are a refusal. Whatever else sbatch says (a time-out, a lost connection, a sentence of a site's submit
plugin) may stand beside a job that was created all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Refusal:
    """`word` names what is wrong. `passing`: the same order may be taken later, when nothing of it has changed."""

    word: str
    passing: bool = False


_PASSING = True

REFUSALS: Final[Mapping[str, Refusal]] = {
    "Invalid partition name specified": Refusal("partition"),
    "No partition specified or system default partition": Refusal("partition"),
    "User's group not permitted to use this partition": Refusal("partition_denied"),
    "Required partition not available (inactive or drain)": Refusal("partition_unavailable", _PASSING),
    "Requested partition configuration not available now": Refusal("partition_limits"),
    "Invalid account or account/partition combination specified": Refusal("account"),
    "Invalid qos specification": Refusal("qos"),
    "Invalid wckey specification": Refusal("wckey"),
    "Invalid feature specification": Refusal("constraint"),
    "Invalid generic resource (gres) specification": Refusal("gres"),
    "Invalid GRES specification (with and without type identification)": Refusal("gres"),
    "Duplicate generic resource (gres) specification": Refusal("gres"),
    "Requested GRES option unsupported by configured SelectType plugin": Refusal("gres"),
    "Invalid Trackable RESource (TRES) specification": Refusal("gres"),
    "Requested node configuration is not available": Refusal("size"),
    "More processors requested than permitted": Refusal("size"),
    "Node count specification invalid": Refusal("size"),
    "CPU count specification invalid": Refusal("size"),
    "Memory required by task is not available": Refusal("size"),
    "Requested nodes not in this partition": Refusal("nodes"),
    "Invalid node name specified": Refusal("nodes"),
    "Requested time limit is invalid (missing or exceeds some limit)": Refusal("time_limit"),
    "Invalid license specification": Refusal("licenses"),
    "Requested reservation is invalid": Refusal("reservation"),
    "Access denied to requested reservation": Refusal("reservation"),
    "Requested reservation not usable now": Refusal("reservation", _PASSING),
    "Access/permission denied": Refusal("denied"),
    "Invalid user id": Refusal("user"),
    "Invalid group id": Refusal("user"),
    "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)": Refusal(
        "policy", _PASSING
    ),
    "Requested account has breached requested QOS usage threshold": Refusal("policy", _PASSING),
    "MaxJobCount limit reached": Refusal("queue_full", _PASSING),
    "System submissions disabled": Refusal("submissions_disabled", _PASSING),
    "Pathname of a file, directory or other parameter too long": Refusal("path"),
    "Invalid job array specification": Refusal("array"),
    "Job dependency problem": Refusal("dependency"),
}
"""What the controller answers to a submission, after `Batch job submission failed:`."""

BEFORE_SENDING: Final[Mapping[str, Refusal]] = {
    "Invalid generic resource (gres) specification": Refusal("gres"),
    "Invalid --time specification": Refusal("time_limit"),
    "Invalid --mem specification": Refusal("size"),
    "Invalid --signal specification": Refusal("signal"),
    "Batch script is empty!": Refusal("script"),
    "Batch script contains DOS line breaks (\\r\\n)": Refusal("script"),
    "This does not look like a batch script.  The first": Refusal("script"),
}
"""What sbatch says by itself, before it asks the controller at all."""

ANSWERS: Final[Mapping[str, str]] = {
    "Invalid job id specified": "unknown",
    "Access/permission denied": "denied",
    "Job/step already completing or completed": "ended",
    "Job has already finished": "ended",
    "Job is pending execution": "pending",
    "Job is not running": "not_running",
    "Requested operation is presently disabled": "disabled",
    "Job can not be altered now, try again later": "later",
}
"""What the controller answers to scancel and scontrol, each as one word."""

_FAILED = "Batch job submission failed: "
_ERROR = re.compile(r"sbatch: error: (.+)")
# Words of a first try that may have reached the controller, whatever a second one was told.
_MAYBE_SENT = re.compile(r"timed out|retry|unable to contact|connect|communication|authentication", re.IGNORECASE)


def refusal(stderr: str) -> tuple[str, Refusal] | None:
    """The sentence of a certain refusal, and what it is; None where the job may have been created all the same."""
    errors = [match[1] for line in stderr.splitlines() if (match := _ERROR.fullmatch(line.strip()))]
    if any(_MAYBE_SENT.search(line) for line in stderr.splitlines()):
        return None
    answers = [error.removeprefix(_FAILED) for error in errors if error.startswith(_FAILED)]
    known, said = (REFUSALS, answers) if answers else (BEFORE_SENDING, errors)
    certain = [sentence for sentence in said if sentence in known]
    return (certain[0], known[certain[0]]) if len(certain) == 1 else None


def answer_words(stderr: str) -> list[str | None]:
    """A word for each line of what scancel or scontrol was told; None for one that is not known."""
    return [
        next((word for sentence, word in ANSWERS.items() if sentence in line), None)
        for line in stderr.splitlines()
        if line.strip()
    ]
