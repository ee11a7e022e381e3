"""What a run of histories came to, as a table at the end of the test run, also where workers ran them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pytest

PROPERTY: Final = "chaos"


def lines(histories: Sequence[dict[str, Any]]) -> list[str]:
    """How many histories and faults there were, by service, and the seeds that went wrong."""
    faults = Counter((service, word) for history in histories for service, _, word in history["faults"])
    places = {(service, point) for history in histories for service, point, _ in history["faults"]}
    services = list(dict.fromkeys(service for service, _ in faults))
    table = [f"{'':<12}{'places':>8}{'killed':>8}{'frozen':>8}"]
    for service in sorted(services):
        distinct = len([place for place in places if place[0] == service])
        table.append(f"{service:<12}{distinct:>8}{faults[service, 'kill']:>8}{faults[service, 'stop']:>8}")
    kills, freezes = (sum(n for (_, word), n in faults.items() if word == one) for one in ("kill", "stop"))
    table.append(f"{'all':<12}{len(places):>8}{kills:>8}{freezes:>8}")
    counts: Counter[str] = Counter()
    for history in histories:
        counts.update(history.get("counts", {}))
    table += [", ".join(f"{count} {what}" for what, count in counts.items())] if counts else []
    jobs, seconds = (sum(history[key] for history in histories) for key in ("jobs", "seconds"))
    wrong = [str(history["seed"]) for history in histories if not history["right"]]
    ending = f"seeds that went wrong: {', '.join(wrong)}" if wrong else "all right"
    return [*table, f"{len(histories)} histories of {jobs} jobs in {seconds:.0f} s: {ending}"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table, if there were histories."""
    histories = list(_found(terminalreporter.stats))
    if histories:
        terminalreporter.section("histories of kills and freezes")
        for line in lines(histories):
            terminalreporter.line(line)


def _found(stats: dict[str, list[Any]]) -> Iterable[dict[str, Any]]:
    for report in (one for reports in stats.values() for one in reports):
        if getattr(report, "when", None) == "call":
            yield from (value for name, value in report.user_properties if name == PROPERTY)
