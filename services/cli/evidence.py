"""What was seen of an attempt, one line per fact: when, by whom, and what, in the order in which it happened."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from services.cli.escapes import marked, printable
from shared.lifecycle.facts import AnyFact
from shared.lifecycle.seen import happened, words


class Told(NamedTuple):
    """What happened, when, and who says so."""

    at: datetime
    who: str
    what: str


def evidence_lines(facts: Iterable[AnyFact], day: date) -> list[str]:
    """The lines; the job's own id in a place is left out, since it stands above them."""
    ordered = sorted(facts, key=lambda fact: (happened(fact), fact.at, fact.version.epoch, fact.version.n))
    told = [Told(happened(fact), fact.source, words(fact)) for fact in ordered]
    return seen_lines(told, ordered[0].job, day) if ordered else []


def seen_lines(told: Sequence[Told], job: str, day: date) -> list[str]:
    """One line each; their columns are as wide as what stands in them."""
    times = [clock(one.at, day) for one in told]
    sources = [printable(_who(one.who)) for one in told]
    time_cells, source_cells = max(map(len, times), default=0), max(map(len, sources), default=0)
    return [
        f"[dim]{time:>{time_cells}}  {marked(source.ljust(source_cells))}[/] {marked(one.what.replace(job, '…'))}"
        for time, source, one in zip(times, sources, told, strict=True)
    ]


def clock(at: datetime, day: date) -> str:
    """The time of an instant in UTC, as all that is shown, with its date where that is not `day`."""
    utc = at.astimezone(UTC)
    return f"{utc:%H:%M:%S}Z" if utc.date() == day else f"{utc:%m-%d %H:%M:%S}Z"


def when(at: datetime) -> str:
    """The same with its date, as the server's sentences have it."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _who(source: str) -> str:
    """A service of one replica is named once."""
    service, _, replica = source.partition("/")
    return service if service == replica else source
