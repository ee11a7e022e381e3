"""What was seen of an attempt, one line per fact: when, by whom, and what, in the order of the times."""

from collections.abc import Iterable
from datetime import date, datetime
from typing import Final

from services.cli.escapes import marked
from shared.lifecycle.facts import AnyFact
from shared.lifecycle.seen import words

_SOURCE_CELLS: Final = 17


def evidence_lines(facts: Iterable[AnyFact], day: date) -> list[str]:
    """The lines; the job's own id in a place is left out, since it stands above them."""
    ordered = sorted(facts, key=lambda fact: (fact.at, fact.version.epoch, fact.version.n))
    return [seen_line(fact.at, fact.source, words(fact), fact.job, day) for fact in ordered]


def seen_line(at: datetime, who: str, what: str, job: str, day: date) -> str:
    """One thing that was seen."""
    return f"[dim]{clock(at, day)}  {marked(who):<{_SOURCE_CELLS}}[/] {marked(what.replace(job, '…'))}"


def clock(at: datetime, day: date) -> str:
    """The local time of an instant, with its date where that is not `day`."""
    local = at.astimezone()
    return f"{local:%H:%M:%S}" if local.date() == day else f"{local:%m-%d %H:%M:%S}"
