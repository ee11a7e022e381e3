"""When nobody could look is remembered, and an answer that says too much at once is not believed at once."""

from services.watcher.slurm.blindness import Blind, Blindness, Sight
from tests.unit.watcher.slurm.rows import at

TWENTY = frozenset(f"job{number}" for number in range(20))


def test_a_blind_time_is_from_the_last_good_look_to_the_next() -> None:
    blindness = Blindness()
    blindness.open_eyes(at(0))
    blindness.open_eyes(at(2))
    assert blindness.times == ()
    blindness.close_eyes(at(4))
    blindness.close_eyes(at(6))
    assert blindness.sight == Sight(at(2))
    blindness.open_eyes(at(60))
    assert blindness.sight == Sight(at(60), (Blind(at(2), at(60)),))


def test_the_time_between_two_observers_is_blind() -> None:
    before = Blindness()
    before.open_eyes(at(0))
    before.close_eyes(at(2))
    after = Blindness(before.sight)
    assert not after.times
    after.open_eyes(at(600))
    after.open_eyes(at(602))
    assert after.times == (Blind(at(0), at(600)),)


def test_without_anybody_before_nothing_is_known_to_be_blind() -> None:
    blindness = Blindness()
    blindness.open_eyes(at(0))
    assert blindness.times == ()


def test_a_controller_that_was_never_seen_is_away_since_it_was_asked() -> None:
    blindness = Blindness()
    blindness.close_eyes(at(5))
    blindness.open_eyes(at(9))
    assert blindness.times == (Blind(at(5), at(9)),)


def test_blind_times_are_forgotten_after_a_day() -> None:
    blindness = Blindness(Sight(at(10), (Blind(at(0), at(10)),)))
    blindness.open_eyes(at(12))
    blindness.open_eyes(at(86_411))
    assert blindness.times == (Blind(at(10), at(12)),)


def test_more_than_half_gone_at_once_is_believed_only_after_a_minute() -> None:
    blindness = Blindness()
    few = frozenset(sorted(TWENTY)[:9])
    assert "11 of 20" in (blindness.broken(TWENTY, few, at(0)) or "")
    assert blindness.broken(TWENTY, few, at(59)) is not None
    assert blindness.broken(TWENTY, few, at(60)) is None
    blindness.open_eyes(at(60))
    assert blindness.broken(TWENTY, few, at(62)) is not None


def test_half_of_them_and_a_handful_may_go_at_once() -> None:
    blindness = Blindness()
    assert blindness.broken(TWENTY, frozenset(sorted(TWENTY)[:10]), at(0)) is None
    assert blindness.broken(frozenset(sorted(TWENTY)[:9]), frozenset(), at(0)) is None
