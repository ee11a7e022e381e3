"""A supervisor process takes attempt after attempt, up to a bound, and never asks for one that it does not take."""

import os
import socket
from pathlib import Path

import pytest

from shared.backends.local import layout, serving
from shared.backends.local.crew import Crew, Task
from shared.backends.local.observer import LocalState, Observer
from tests.unit.backends.local.builders import Records


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


def test_an_attempt_for_which_no_supervisor_can_be_made_has_an_end(tmp_path: Path) -> None:
    """As one whose order this version reads otherwise than the host that took it: it would be lost without a word."""
    records, job = Records(tmp_path / "local"), "d.j1.a1.s1"
    records.write(job, layout.SPEC, job="j1", attempt=1)
    assert not serving.supervise(str(records.root), ({"submission": job, "command": []}, 0, 0, [0, 1]))
    (seen,) = Observer(records.root).observe().submissions
    assert seen.exit is not None
    assert (seen.state, seen.exit.ran, seen.exit.reason) == (LocalState.EXITED, False, "supervisor_failed")
    assert (seen.exit.job, seen.exit.attempt, seen.exit.tenant, seen.exit.devices) == ("j1", 1, "acme", (0, 1))
    assert "please report this: OrderError(" in (seen.exit.sentence or "")
