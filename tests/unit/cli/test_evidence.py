"""Lines of evidence are in the order of their times, with who saw it."""

from services.cli.evidence import clock, evidence_lines
from tests.unit.cli.given import JOB, NOON, a_fact, at


def test_lines_are_in_the_order_of_their_times_with_who_saw_it() -> None:
    taken = {"backend": "local", "cluster": "local", "ref": f"tidegate.{JOB}.a1.s1"}
    facts = [a_fact("gpus_freed", 9), a_fact("input_valid", 1), a_fact("accepted", 2, **taken)]
    lines = evidence_lines(facts, NOON.astimezone().date())
    assert [line.split("[/] ")[1] for line in lines] == [
        "inputs and command check out",
        "taken by local as tidegate.….a1.s1",
        "its GPUs are free",
    ]
    assert "launcher/launcher" in lines[1]


def test_another_day_is_named() -> None:
    day = NOON.astimezone().date()
    assert clock(NOON, day) == f"{NOON.astimezone():%H:%M:%S}"
    assert clock(at(2 * 86_400), day) == f"{at(2 * 86_400).astimezone():%m-%d %H:%M:%S}"
