"""A supervisor process takes attempt after attempt, up to a bound, and never asks for one that it does not take."""

import os
import socket

import pytest

from shared.backends.local import serving
from shared.backends.local.crew import Crew, Task


def task(number: int) -> Task:
    """An attempt's order, by its number."""
    return ({"number": number}, 0, 0, [])


def served(monkeypatch: pytest.MonkeyPatch, bound: int, *goes_on: bool) -> tuple[list[object], int]:
    """The attempts that one took, told after each whether it may go on; and how often it asked for another."""
    taken: list[object] = []
    answers = iter(goes_on)
    crew = Crew()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    crew.join(7, ours, "first")
    asked = 0

    def supervise(_root: str, given: Task) -> bool:
        taken.append(given[0]["number"])
        return next(answers)

    def ask(channel: socket.socket) -> tuple[Task, int] | None:
        nonlocal asked
        asked += 1
        channel.send(b"?")
        assert crew.collect()
        spec = os.open(os.devnull, os.O_RDONLY)
        assert crew.hand("next", task(asked + 1), spec)
        os.close(spec)
        return hear(channel)

    hear = serving._ask
    monkeypatch.setattr(serving, "supervise", supervise)
    monkeypatch.setattr(serving, "ATTEMPTS_MAX", bound)
    monkeypatch.setattr(serving, "_ask", ask)
    with theirs:
        serving.serve("root", theirs, task(1), os.open(os.devnull, os.O_RDONLY))
    return taken, asked


def test_takes_all_that_it_asked_for_and_at_its_bound_asks_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch, 3, True, True, True) == ([1, 2, 3], 2)


def test_asks_for_nothing_after_an_attempt_that_leaves_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch, 3, True, False) == ([1, 2], 1)
