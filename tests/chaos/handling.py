"""One history of a person who handles jobs while replicas are killed and frozen, and its judgement. Everything random
comes from one seed."""

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from shared.lifecycle.reasons import EndReason
from shared.runtime.failpoints import POINTS
from tests.chaos import cleared, runs
from tests.chaos.admins import got_round
from tests.chaos.answers import untrue_answers
from tests.chaos.desks import wrong_at_desks
from tests.chaos.ending import last_wish
from tests.chaos.ends import lost, untrue_ends
from tests.chaos.handled import Handled
from tests.chaos.made import ANYTHING, NOTHING_SLOW
from tests.chaos.orders import Campaign, Fault, random_faults
from tests.chaos.person import Ask, Person, plan
from tests.chaos.retried import Retrying
from tests.chaos.stand import Stand
from tests.chaos.storm import FAULT_SECONDS, SETTLE_SECONDS, History
from tests.chaos.versions import folds_to_something_else, shown_otherwise, versions

JOBS: Final = 7
PIPELINES: Final = 2
DESKS_AT_FIRST: Final = 2
MOVES: Final = 30
_MORE_JOBS: Final = 3
_MORE_MOVES: Final = 10
_MORE_SECONDS: Final = 2.0
_MOST_JOBS: Final = 200
_LOOK_SECONDS: Final = 0.3
_SHOWN: Final = 8
_COSTLY: Final = Fault("supervisor", "exit.before", times=3)
_number = itertools.count(1)


@dataclass(frozen=True)
class Handling(History):
    """What happened in one."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        return {**super().told(), "counts": dict(self.counts)}

    def __str__(self) -> str:
        return f"{', '.join(f'{count} {what}' for what, count in self.counts.items())}; {super().__str__()}"


def happen(
    stand: Stand, seed: int, ledger: Path, faults: Sequence[Fault] | None = None, *, brief: bool = False
) -> Handling:
    """Run the history of a seed, with the faults that are given or those that the seed makes; where it is to be
    `brief`, without what takes its time. Never raises for what it finds: that is in its complaint."""
    rng = random.Random(seed)
    faults = _random_faults(rng) if faults is None else list(faults)
    begun = time.monotonic()
    variety = NOTHING_SLOW if brief else ANYTHING
    handled = Handled(stand.patient(), ledger, f"p{next(_number)}-{seed:x}", rng, variety)
    history = _Going(stand, handled, rng, faults)
    complaint = None
    try:
        history.run()
    except AssertionError as error:
        complaint = f"{error}\nin {stand.home}"
    finally:
        history.end()
    seconds = time.monotonic() - begun
    done = tuple(history.campaign.done)
    return Handling(seed, done, len(history.handled.made), seconds, complaint, history.counts)


def _random_faults(rng: random.Random) -> list[Fault]:
    """At any place, and often that of which a retry by itself is to follow: few others cost a run that was seen."""
    faults = random_faults(rng)
    places = {(fault.service, fault.point) for fault in faults}
    if rng.random() < 0.4 and (_COSTLY.service, _COSTLY.point) not in places:
        faults.append(_COSTLY)
    return faults


class _Going:
    """A history under way."""

    def __init__(self, stand: Stand, handled: Handled, rng: random.Random, faults: Sequence[Fault]) -> None:
        self.campaign = Campaign(stand.orders, faults)
        self.handled = handled
        self.person = Person(stand, self.handled)
        self.counts: dict[str, int] = {}
        self._stand = stand
        self._rng = rng
        self._moves = plan(rng, MOVES)
        self._restless = random.Random(rng.random())

    def run(self) -> None:
        """All of it, and what is found at the end of each part."""
        self.handled.submit(JOBS, PIPELINES, DESKS_AT_FIRST)
        self.campaign.begin()
        self._handle()
        self._let_end()
        self._judge_settled()
        self._delete_all()
        self._judge_deleted()

    def end(self) -> None:
        """Leave nothing armed, frozen or open."""
        self.campaign.end()
        self.person.close()

    def _handle(self) -> None:
        """The person goes on for as long as a fault waits for somebody to pass, and jobs keep coming."""
        failed: list[BaseException] = []

        def act() -> None:
            try:
                moves = self._moves
                while moves:
                    for move in moves:
                        self.person.make(move)
                    moves = plan(self._restless, _MORE_MOVES) if self.campaign.waits_for else []
            except BaseException as error:
                failed.append(error)

        acting = threading.Thread(target=act)
        acting.start()
        try:
            self._watch(acting)
        finally:
            self.campaign.give_up()
            acting.join()
        for error in failed:
            raise AssertionError(f"the person could not go on: {error!r}") from error

    def _watch(self, acting: threading.Thread) -> None:
        submitted = looked = time.monotonic()
        deadline = time.monotonic() + FAULT_SECONDS
        while acting.is_alive() or not self.campaign.over:
            self.campaign.step()
            now = time.monotonic()
            if self.campaign.waits_for and now - submitted > _MORE_SECONDS and len(self.handled.made) < _MOST_JOBS:
                self.handled.submit(_MORE_JOBS, 1, 1)
                submitted = now
            if now - looked > _LOOK_SECONDS:
                _none(cleared.alive_too_long(self._stand, self.handled))
                looked = time.monotonic()
            waits_for = ", ".join(str(fault) for fault in self.campaign.waits_for)
            assert now < deadline or not waits_for, f"nobody passed in {FAULT_SECONDS} s: {waits_for}"
            time.sleep(0.02)

    def _let_end(self) -> None:
        """The person asks for what is needed, until every job has ended and nothing is open."""

        def rest() -> list[str]:
            rows = cleared.states(self._stand, self.handled)
            for job, row in rows.items():
                ask = last_wish(self.handled.made[job], row, self._rng)
                if ask is not None:
                    (answer,) = self.person.ask_at_once([ask])
                    if answer.status == httpx.codes.CONFLICT and ask.verb == "resume":
                        self.person.ask_at_once([Ask("stop", job)])
            _none(cleared.alive_too_long(self._stand, self.handled))
            left = cleared.still_open(self._stand, self.handled)
            after = cleared.states(self._stand, self.handled)  # a policy may have suspended what ran until then
            return [*left, *(f"{job} is PAUSED" for job, row in after.items() if row["state"] == "PAUSED")]

        self._until_nothing(rest)

    def _judge_settled(self) -> None:
        stand, handled = self._stand, self.handled
        told = versions(stand, list(handled.made))
        lines, ends = handled.lines(), runs.Ends.read(stand, handled)
        costly = sum(POINTS[fault.point].costs_the_run for fault in self.campaign.done)
        casualties = runs.without_an_end(lines, ends) | lost(told)
        wrong = [f"{job} is lost" for job in handled.made if job not in told]
        wrong += [what for one in told.values() for what in one.wrong]
        wrong += folds_to_something_else(stand, told)
        wrong += [*ends.twice, *runs.ran_once(lines), *runs.in_order(lines, ends)]
        wrong += runs.found_what_was_written(handled, lines, casualties)
        wrong += untrue_ends(handled, told, lines, casualties)
        wrong += [*got_round(told), *wrong_at_desks(handled, told, lines, ends, casualties)]
        retrying = Retrying(handled, lines, ends, stand.infrastructure_retries)
        wrong += retrying.wrong(told)
        self.counts = {
            "workstations": len(handled.desks),
            "suspended by policy": sum(len(one.suspended) for one in told.values()),
            "tried again by themselves": retrying.count[EndReason.EXIT_NONZERO],
            "tried again that were lost": retrying.count[EndReason.LOST],
        }
        if len(casualties) > costly:
            wrong.append(f"{len(casualties)} attempts have no end, and {costly} supervisors were killed: {casualties}")
        wrong += cleared.dead_letters(stand)
        _none(wrong)
        self._until_nothing(lambda: list(runs.metered_as_it_ran(stand, handled, ends, casualties)))

    def _delete_all(self) -> None:
        for job in sorted(cleared.states(self._stand, self.handled), reverse=True):  # the later step goes first
            (answer,) = self.person.ask_at_once([Ask("delete", job)])
            assert answer.status == httpx.codes.NO_CONTENT, f"a job that has ended cannot be deleted: {answer}"

    def _judge_deleted(self) -> None:
        stand, handled = self._stand, self.handled
        self._until_nothing(lambda: [*cleared.left_behind(stand, handled), *cleared.still_open(stand, handled)])
        told = versions(stand, list(handled.made))
        self.counts |= {
            "requests": len(self.person.tries),
            "by an admin": sum(one.admin for one in self.person.tries),
            "commands in the logs": sum(len(one.asked) for one in told.values()),
        }
        wrong = [what for one in told.values() for what in one.wrong]
        wrong += shown_otherwise(stand, told)
        wrong += untrue_answers(self.person.tries, told, handled.pipelines)
        wrong += runs.ran_once(handled.lines())
        wrong += cleared.dead_letters(stand)
        _none(wrong)

    def _until_nothing(self, found: Callable[[], list[str]]) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while left := found():
            assert time.monotonic() < deadline, f"still so after {SETTLE_SECONDS} s:\n  {_listed(left)}"
            time.sleep(_LOOK_SECONDS)


def _none(wrong: Sequence[str] | Any) -> None:
    found = list(wrong)
    assert not found, f"wrong:\n  {_listed(found)}"


def _listed(found: Sequence[str]) -> str:
    more = [f"… and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return "\n  ".join([*found[:_SHOWN], *more])
