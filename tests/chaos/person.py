"""A user and an admin who do random things to jobs, pipelines and workstations, at times two at once, and keep every
answer."""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, get_args

import httpx

from shared.client.client import Tidegate
from shared.client.errors import NoServer, Refused, Unavailable
from tests.chaos.handled import Handled, patiently
from tests.chaos.stand import Stand

Verb = Literal["stop", "pause", "resume", "retry", "hold", "release", "delete", "snooze"]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
TELL_AN_ADMIN: Final = ("pause", "resume", "hold", "release")
"""What the log keeps apart from a user's, where an admin asks for it."""
SNOOZE_SECONDS: Final = 60
_OF_PIPELINES: Final[tuple[Verb, ...]] = ("stop", "pause", "resume", "retry")
_OPPOSITES: Final[Mapping[Verb, Sequence[Verb]]] = {
    "stop": ("resume", "pause", "retry"),
    "pause": ("resume", "stop", "release"),
    "resume": ("pause", "stop", "delete"),
    "retry": ("delete", "stop", "pause"),
    "hold": ("release", "stop"),
    "release": ("hold", "pause"),
    "delete": ("retry", "resume", "stop"),
    "snooze": ("pause", "stop"),
}
_WEIGHTS: Final[Mapping[Verb, int]] = {
    "stop": 3, "pause": 5, "resume": 5, "retry": 4, "hold": 2, "release": 2, "delete": 1, "snooze": 4,
}  # fmt: skip
_AGAINST: Final[Mapping[Verb, Verb]] = {"pause": "resume", "hold": "release"}
_OF_DESKS: Final[Mapping[Verb, str]] = {"stop": "stop", "pause": "suspend", "resume": "resume", "snooze": "snooze"}
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
    desk: bool
    admin: tuple[bool, bool]
    """Whether each hand's request is the admin's."""
    against: bool
    """A user's, against what the admin keeps, where there is anything."""
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
            desk=rng.random() < 0.2,
            admin=(rng.random() < 0.35, rng.random() < 0.35),
            against=rng.random() < 0.2,
            twice=rng.choice(("no", "no", "no", "same", "opposite", "step")),
            force=rng.random() < 0.3,
        )
        for _ in range(moves)
    ]


class Ask(NamedTuple):
    """A request to be made."""

    verb: Verb
    target: str
    admin: bool = False


@dataclass(frozen=True, eq=False)
class Try:
    """One request and its answer. Without one (`status` None) it may still come to pass at any time."""

    verb: Verb
    target: str
    admin: bool
    force: bool
    sent: float
    answered: float
    status: int | None
    detail: str = ""
    view: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def by_admin(self) -> bool:
        """As the log tells it."""
        return self.admin and self.verb in TELL_AN_ADMIN


class _Hand(NamedTuple):
    """The clients of one of two who ask at once."""

    user: Tidegate
    admin: Tidegate


class Person:
    """Does what it is told and keeps its `tries`. Each of its two hands has clients of its own."""

    def __init__(self, stand: Stand, handled: Handled) -> None:
        self.tries: list[Try] = []
        self._handled = handled
        self._hands = [_Hand(stand.patient(), stand.patient(admin=True)) for _ in range(2)]
        self._threads = ThreadPoolExecutor(len(self._hands))

    def close(self) -> None:
        """Once nothing is asked any more."""
        self._threads.shutdown()
        for client in (client for hand in self._hands for client in hand):
            client.__exit__(None, None, None)

    def make(self, move: Move) -> None:
        """Wait, look at the target, and ask; with the other hand at the same moment where the move says so."""
        time.sleep(move.seconds)
        kept = self._kept()
        if move.against and kept:
            self.ask_at_once([kept[int(move.target * len(kept))]])
            return
        of_pipeline = move.pipeline and bool(self._handled.pipelines)
        targets = sorted(self._handled.pipelines) if of_pipeline else self._jobs(move)
        target = targets[int(move.target * len(targets))]
        first, second = move.admin
        verbs = self._verbs(target)
        verb = self._verb(move, verbs, target)
        asked = [Ask(verb, target, first)]
        if move.twice == "same":
            asked.append(Ask(verb, target, second))
        elif move.twice == "opposite" or (move.twice == "step" and not of_pipeline):
            other = [one for one in _OPPOSITES[verb] if one in verbs]
            asked.append(Ask(other[int(move.target * 1000) % len(other)], target, second))
        elif move.twice == "step":
            steps = self._handled.pipelines[target]
            asked.append(Ask(verb, steps[int(move.choice * 1000) % len(steps)], second))
        self.ask_at_once(asked, force=move.force)

    def _kept(self) -> list[Ask]:
        """What lets go on whatever the admin has paused or held at any time."""
        keeping = [one for one in self.tries if one.by_admin and one.verb in _AGAINST and one.status == httpx.codes.OK]
        return [Ask(_AGAINST[one.verb], one.target) for one in keeping]

    def _jobs(self, move: Move) -> list[str]:
        if move.desk and self._handled.desks:
            return sorted(self._handled.desks)
        if move.state is not None:
            params = {"state": move.state, "limit": 100}
            found = patiently(lambda: self._hands[0].user.call("GET", "/v1/jobs", params=params))
            there = sorted(job["id"] for job in found["items"] if job["id"] in self._handled.made)
            if there:
                return there
        return sorted(self._handled.made)

    def _verbs(self, target: str) -> Sequence[Verb]:
        if target in self._handled.pipelines:
            return _OF_PIPELINES
        return VERBS if self._handled.made[target].is_desk else [verb for verb in VERBS if verb != "snooze"]

    def _verb(self, move: Move, verbs: Sequence[Verb], target: str) -> Verb:
        weighed = [verb for verb in verbs for _ in range(_WEIGHTS[verb])]
        if not move.anything:
            allowed = self._allowed(target, admin=move.admin[0])
            weighed = [verb for verb in weighed if verb in allowed] or weighed
        return weighed[int(move.choice * len(weighed))]

    def _allowed(self, target: str, *, admin: bool) -> set[str]:
        client = self._hands[0].admin if admin else self._hands[0].user
        try:
            view = patiently(lambda: client.call("GET", self._path(target)))
        except Refused:
            return set()  # it was deleted
        return {name for name, action in view["actions"].items() if action["allowed"]} | {"snooze"}

    def ask_at_once(self, asked: Sequence[Ask], *, force: bool = False) -> list[Try]:
        """One or two requests, sent in the same moment and made again until each is answered: the answers."""
        together = threading.Barrier(len(asked))

        def one(hand: _Hand, ask: Ask) -> Try:
            together.wait()
            return self._asked(hand.admin if ask.admin else hand.user, ask, force and ask.verb in ("stop", "retry"))

        hands = self._hands[: len(asked)]
        running = [self._threads.submit(one, hand, ask) for hand, ask in zip(hands, asked, strict=True)]
        return [thread.result() for thread in running]

    def _asked(self, client: Tidegate, ask: Ask, force: bool) -> Try:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            done = self._tried(client, ask, force)
            self.tries.append(done)
            if done.status is not None:
                return done
            assert time.monotonic() < deadline, f"no api answered in {_ANSWER_SECONDS} s: {done}"
            time.sleep(0.05)

    def _tried(self, client: Tidegate, ask: Ask, force: bool) -> Try:
        sent = time.time()
        try:
            if ask.verb == "delete":
                client.call("DELETE", self._path(ask.target))
                return Try(*ask, force, sent, time.time(), httpx.codes.NO_CONTENT)
            body: dict[str, Any] = {"seconds": SNOOZE_SECONDS} if ask.verb == "snooze" else {}
            view = client.call("POST", self._path(ask.target, ask.verb), json=body | ({"force": True} if force else {}))
            return Try(*ask, force, sent, time.time(), httpx.codes.OK, view=view)
        except (NoServer, Unavailable) as error:
            return Try(*ask, force, sent, float("inf"), None, str(error))
        except Refused as refused:
            return Try(*ask, force, sent, time.time(), refused.status, refused.detail)

    def _path(self, target: str, verb: Verb | None = None) -> str:
        """A workstation is asked by routes of its own where there are any."""
        if target in self._handled.pipelines:
            return f"/v1/pipelines/{target}" + (f"/{verb}" if verb else "")
        if self._handled.made[target].is_desk and verb is not None and verb in _OF_DESKS:
            return f"/v1/workstations/{target}/{_OF_DESKS[verb]}"
        return f"/v1/jobs/{target}" + (f"/{verb}" if verb else "")
