"""A person who does random things to jobs and pipelines, at times two at once, and keeps every answer."""

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from tests.chaos.handled import Handled, patiently

Verb = Literal["stop", "pause", "resume", "retry", "hold", "release", "delete"]
VERBS: Final[tuple[Verb, ...]] = ("stop", "pause", "resume", "retry", "hold", "release", "delete")
_OF_PIPELINES: Final[tuple[Verb, ...]] = ("stop", "pause", "resume", "retry")
_OPPOSITES: Final[Mapping[Verb, Sequence[Verb]]] = {
    "stop": ("resume", "pause", "retry"),
    "pause": ("resume", "stop", "release"),
    "resume": ("pause", "stop", "delete"),
    "retry": ("delete", "stop", "pause"),
    "hold": ("release", "stop"),
    "release": ("hold", "pause"),
    "delete": ("retry", "resume", "stop"),
}
_WEIGHTS: Final[Mapping[Verb, int]] = {
    "stop": 3, "pause": 5, "resume": 5, "retry": 4, "hold": 2, "release": 2, "delete": 1,
}  # fmt: skip
_ANSWER_SECONDS: Final = 240


@dataclass(frozen=True)
class Move:
    """What is done next: `target` and `choice` pick among what there is then, each from 0 to 1."""

    seconds: float
    """After the move before."""
    state: str | None
    """Of a job in this state, where there is one."""
    target: float
    choice: float
    anything: bool
    """Or one of what the target says is allowed."""
    pipeline: bool
    twice: Literal["no", "same", "opposite", "step"]
    force: bool


def plan(rng: random.Random, moves: int) -> list[Move]:
    """Random moves."""
    return [
        Move(
            seconds=rng.choice((0.0, 0.0, 0.05, 0.2, 0.5)) * rng.random(),
            state=rng.choice(("RUNNING", "RUNNING", "SUBMITTED", "PAUSED", "QUEUED", None, None)),
            target=rng.random(),
            choice=rng.random(),
            anything=rng.random() < 0.25,
            pipeline=rng.random() < 0.3,
            twice=rng.choice(("no", "no", "no", "same", "opposite", "step")),
            force=rng.random() < 0.3,
        )
        for _ in range(moves)
    ]


@dataclass(frozen=True, eq=False)
class Try:
    """One request and its answer. Without one (`status` None) it may still come to pass at any time."""

    verb: Verb
    target: str
    force: bool
    sent: float
    answered: float
    status: int | None
    detail: str = ""
    view: Mapping[str, Any] | None = field(default=None, repr=False)


class Person:
    """Does what it is told and keeps its `tries`. Each of its two hands has a client of its own."""

    def __init__(self, client: Callable[[], Tidegate], handled: Handled) -> None:
        self.tries: list[Try] = []
        self._handled = handled
        self._clients = (client(), client())
        self._hands = ThreadPoolExecutor(len(self._clients))

    def close(self) -> None:
        """Once nothing is asked any more."""
        self._hands.shutdown()
        for client in self._clients:
            client.__exit__(None, None, None)

    def make(self, move: Move) -> None:
        """Wait, look at the target, and ask; with the other hand at the same moment where the move says so."""
        time.sleep(move.seconds)
        of_pipeline = move.pipeline and bool(self._handled.pipelines)
        targets = sorted(self._handled.pipelines) if of_pipeline else self._jobs(move.state)
        target = targets[int(move.target * len(targets))]
        verb = self._verb(move, target, of_pipeline)
        asked = [(verb, target)]
        if move.twice == "same":
            asked.append((verb, target))
        elif move.twice == "opposite" or (move.twice == "step" and not of_pipeline):
            other = [one for one in _OPPOSITES[verb] if not of_pipeline or one in _OF_PIPELINES]
            asked.append((other[int(move.target * 1000) % len(other)], target))
        elif move.twice == "step":
            steps = self._handled.pipelines[target]
            asked.append((verb, steps[int(move.choice * 1000) % len(steps)]))
        self.ask_at_once(asked, force=move.force)

    def _jobs(self, state: str | None) -> list[str]:
        if state is not None:
            found = patiently(lambda: self._clients[0].call("GET", "/v1/jobs", params={"state": state, "limit": 100}))
            there = sorted(job["id"] for job in found["items"] if job["id"] in self._handled.made)
            if there:
                return there
        return sorted(self._handled.made)

    def _verb(self, move: Move, target: str, of_pipeline: bool) -> Verb:
        verbs = [verb for verb in (_OF_PIPELINES if of_pipeline else VERBS) for _ in range(_WEIGHTS[verb])]
        if not move.anything:
            allowed = self._allowed(target)
            verbs = [verb for verb in verbs if verb in allowed] or verbs
        return verbs[int(move.choice * len(verbs))]

    def _allowed(self, target: str) -> set[str]:
        try:
            view = patiently(lambda: self._clients[0].call("GET", _path(target)))
        except Refused:
            return set()  # it was deleted
        return {name for name, action in view["actions"].items() if action["allowed"]}

    def ask_at_once(self, asked: Sequence[tuple[Verb, str]], *, force: bool = False) -> list[Try]:
        """One or two requests, sent in the same moment and made again until each is answered: the answers."""
        together = threading.Barrier(len(asked))

        def one(client: Tidegate, verb: Verb, target: str) -> Try:
            together.wait()
            return self._asked(client, verb, target, force)

        clients = self._clients[: len(asked)]
        hands = [
            self._hands.submit(one, client, verb, target) for client, (verb, target) in zip(clients, asked, strict=True)
        ]
        return [hand.result() for hand in hands]

    def _asked(self, client: Tidegate, verb: Verb, target: str, force: bool) -> Try:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            done = _tried(client, verb, target, force and verb in ("stop", "retry"))
            self.tries.append(done)
            if done.status is not None:
                return done
            assert time.monotonic() < deadline, f"no api answered in {_ANSWER_SECONDS} s: {done}"
            time.sleep(0.05)


def _tried(client: Tidegate, verb: Verb, target: str, force: bool) -> Try:
    sent = time.time()
    try:
        if verb == "delete":
            client.call("DELETE", _path(target))
            return Try(verb, target, force, sent, time.time(), httpx.codes.NO_CONTENT)
        view = client.call("POST", f"{_path(target)}/{verb}", json={"force": True} if force else {})
        return Try(verb, target, force, sent, time.time(), httpx.codes.OK, view=view)
    except (NoServer, Unavailable) as error:
        return Try(verb, target, force, sent, float("inf"), None, str(error))
    except Refused as refused:
        return Try(verb, target, force, sent, time.time(), refused.status, refused.detail)


def _path(target: str) -> str:
    return f"/v1/{'pipelines' if target.startswith('p') else 'jobs'}/{target}"
