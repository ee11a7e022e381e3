"""What became of something that was asked of Slurm."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Submitted:
    """sbatch gave an id. `cluster` is there where it named one."""

    id: str
    cluster: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """The controller (or sbatch, before it asked) said no, in its own `sentence`: nothing will run.

    One of word `size` may be left in the queue for a while, as a job that FAILED with reason BadConstraints.
    `word` is one of `refusals.REFUSALS`; `passing`: the same order may be taken later.
    """

    sentence: str
    word: str
    passing: bool


@dataclass(frozen=True, slots=True)
class Unclear:
    """There may be a job or not: look for its name until the settle time is over."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """The command said that it did it."""


@dataclass(frozen=True, slots=True)
class NotDone:
    """It did not say so; after a time-out it may have happened. `word` is one of `refusals.ANSWERS`, where known."""

    why: str
    word: str | None
