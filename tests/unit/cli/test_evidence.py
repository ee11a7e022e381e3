"""Lines of evidence are in the order in which it happened, with who saw it, in columns."""

from datetime import timedelta, timezone

from rich.text import Text

from services.cli.evidence import Told, clock, evidence_lines, seen_lines, when
from tests.unit.cli.given import JOB, NOON, a_fact, at


def test_lines_are_in_the_order_of_their_times_with_who_saw_it() -> None:
    key = {"submission": "s1", "created_at": at(2)}
    taken = {"backend": "local", "cluster": "local", "ref": f"tidegate.{JOB}.a1.s1", "segment": key}
    facts = [a_fact("gpus_freed", 9), a_fact("input_valid", 1), a_fact("accepted", 2, **taken)]
    lines = evidence_lines(facts, NOON.date())
    assert [line.split("[/] ")[1] for line in lines] == [
        "inputs and command check out",
        "taken by local as tidegate.….a1.s1",
        "what it held is free",
    ]
    assert lines[1].split("[/]")[0].split()[-1] == "launcher"


def test_an_end_that_is_seen_late_stands_before_what_came_after_it() -> None:
    ended = a_fact("exited", 9, code=0, started_at=at(3), ended_at=at(5), raw_state="exited")
    lines = evidence_lines([a_fact("gpus_freed", 6), ended], NOON.date())
    assert ["exited with" in line for line in lines] == [True, False]
    assert lines[0].startswith(f"[dim]{at(5):%H:%M:%S}Z")


def test_columns_are_as_wide_as_what_stands_in_them() -> None:
    sources = ("api", "watcher/a-cluster-with-a-long-name", "gatekeeper/[2]\n")
    told = [Told(at(number * 86_400), who, "it") for number, who in enumerate(sources)]
    lines = [Text.from_markup(line).plain for line in seen_lines(told, JOB, NOON.date())]
    assert {line.index(" it") for line in lines} == {len("03-04 12:00:00Z  ") + len(sources[1])}
    assert [line.split()[-2] for line in lines] == ["api", sources[1], "gatekeeper/[2]\\n"]
    assert seen_lines([], JOB, NOON.date()) == []


def test_every_time_is_utc_and_says_so_and_another_day_is_named() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=13)))
    assert clock(elsewhere, NOON.date()) == "12:00:00Z"
    assert clock(at(2 * 86_400), NOON.date()) == "03-06 12:00:00Z"
    assert when(elsewhere) == "2026-03-04 12:00:00 UTC"
