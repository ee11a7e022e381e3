"""When a workstation is idle, when that is announced, and when it is suspended for it."""

from datetime import datetime, timedelta

import pytest

from services.watcher.idle import Announced, Idle, InUse, Limits, judge
from shared.backends.local.activity import Activity
from tests.unit.watcher.records import START

LIMITS = Limits.of(1800, 300, None)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def seen(until: float, *, looked: float, **more: float | None) -> Activity:
    """Probes that saw activity `until` then, and looked last at `looked`."""
    probes = {"cpu": until, **more}
    return Activity(START, at(looked), {name: None if s is None else at(s) for name, s in probes.items()}, {})


def test_what_is_in_use_is_not_announced() -> None:
    assert judge(seen(1000, looked=1000), LIMITS, None, at(1000)) == InUse()
    assert judge(seen(0, looked=1499), LIMITS, None, at(1499)) == InUse()


def test_a_suspension_is_announced_a_whole_warning_before_it_comes() -> None:
    assert judge(seen(0, looked=1500), LIMITS, None, at(1500)) == Idle(START, at(1800), is_due=False)
    assert judge(seen(0, looked=1502), LIMITS, None, at(1504)) == Idle(START, at(1804), is_due=False)


def test_where_nobody_looked_for_long_it_is_announced_first_all_the_same() -> None:
    assert judge(seen(0, looked=9000), LIMITS, None, at(9000)) == Idle(START, at(9300), is_due=False)


def test_what_was_announced_is_kept_to_and_comes() -> None:
    announced = Announced(START, at(1804))
    assert judge(seen(0, looked=1803), LIMITS, announced, at(1803)) == Idle(START, at(1804), is_due=False)
    assert judge(seen(0, looked=1804), LIMITS, announced, at(1806)) == Idle(START, at(1804), is_due=True)


def test_any_probe_that_sees_something_takes_it_back() -> None:
    announced = Announced(START, at(1800))
    assert judge(seen(0, looked=1700, heartbeat=1699), LIMITS, announced, at(1700)) == InUse()


def test_its_start_counts_as_use_and_so_does_a_probe_that_never_saw_anything() -> None:
    never = Activity(START, at(1500), {"cpu": None, "heartbeat": None}, {})
    assert judge(never, LIMITS, None, at(1500)) == Idle(START, at(1800), is_due=False)


@pytest.mark.parametrize(
    "activity",
    [
        pytest.param(Activity(START, at(1900), {"cpu": START}, {"gpu": "no answer"}), id="a probe is broken"),
        pytest.param(Activity(START, at(1900), {}, {}), id="there is no probe"),
        pytest.param(seen(0, looked=1839), id="nobody has looked for more than a minute"),
    ],
)
def test_what_cannot_be_known_is_never_idle(activity: Activity) -> None:
    assert judge(activity, LIMITS, Announced(START, at(1800)), at(1900)) == InUse()


def test_idleness_is_counted_to_the_last_look_and_not_to_now() -> None:
    """A minute in which the probes were held up is no minute of idleness."""
    assert judge(seen(0, looked=1495), LIMITS, None, at(1550)) == InUse()
    announced = Announced(START, at(1800))
    assert judge(seen(0, looked=1795), LIMITS, announced, at(1850)) == Idle(START, at(1800), is_due=False)


def test_a_snooze_puts_it_off_before_and_after_it_was_announced() -> None:
    snoozed = Limits.of(1800, 300, at(3000))
    assert judge(seen(0, looked=1500), snoozed, None, at(1500)) == Idle(START, at(3000), is_due=False)
    announced = Announced(START, at(1800))
    assert judge(seen(0, looked=2000), snoozed, announced, at(2000)) == Idle(START, at(3000), is_due=False)
    assert judge(seen(0, looked=3000), snoozed, Announced(START, at(3000)), at(3000)).__class__ is Idle


def test_a_snooze_that_is_over_puts_nothing_off() -> None:
    over = Limits.of(1800, 300, at(60))
    assert judge(seen(0, looked=1500), over, None, at(1500)) == Idle(START, at(1800), is_due=False)


@pytest.mark.parametrize(("idle", "warning"), [(3600, 300), (400, 200), (10, 5), (1, 0.5)])
def test_a_warning_takes_at_most_half_of_the_limit(idle: int, warning: float) -> None:
    assert Limits.of(idle, 300, None).warning == timedelta(seconds=warning)
