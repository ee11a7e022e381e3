"""Slurm's ids, which are text: of a job, a task of an array, a part of a heterogeneous job, a step."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ID = re.compile(
    r"(?P<job>[0-9]{1,10})"
    r"(?:_(?P<tasks>[0-9]{1,10}|\[[0-9,:%.\-]+\])|\+(?P<part>[0-9]{1,5}))?"
    r"(?:\.(?P<step>[0-9]{1,10}(?:\+[0-9]{1,5})?|batch|extern|interactive|TBD))?"
)


@dataclass(frozen=True, slots=True)
class SlurmId:
    """One id, taken apart. `tasks` is one task (`4`) or a set of them as printed (`[1-10%2]`) of the array `job`.

    `part` counts the parts of a heterogeneous job from 0; `step` is `batch`, `extern`, a number, ….
    """

    job: str
    tasks: str | None = None
    part: str | None = None
    step: str | None = None


def parse_id(text: str) -> SlurmId | None:
    """None for what is no id of Slurm."""
    match = _ID.fullmatch(text.strip())
    return match and SlurmId(match["job"], match["tasks"], match["part"], match["step"])
