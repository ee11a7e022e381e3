"""Rule 12: folding `advance` over the logged inputs gives the current record, always."""

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.lifecycle.advance import advance
from shared.lifecycle.inputs import INPUT
from shared.lifecycle.record import JobRecord
from tests.unit.lifecycle.histories import Seeded, in_batches, worlds
from tests.unit.lifecycle.world import World


@settings(max_examples=150, deadline=None)
@given(worlds(), st.integers(0, 2**32 - 1))
def test_replay(world: World, seed: int) -> None:
    """The log keeps, as JSON, what was not ignored of every batch that made an event, and that event's time."""
    if not world.log:
        return
    choices = Seeded(seed)
    first = record = world.log[0].before
    log = []
    for batch in in_batches(choices, [entry.item for entry in world.log]):
        done = advance(record, batch, world.now)
        if done.event is not None:
            kept = [item for item, one in zip(batch, done.outcomes, strict=True) if one.what != "ignored"]
            log.append(([INPUT.dump_json(item, exclude_none=True) for item in kept], world.now))
        record = done.record
    again = JobRecord.model_validate_json(first.model_dump_json(exclude_none=True))
    for inputs, at in log:
        again = advance(again, [INPUT.validate_json(one) for one in inputs], at).record
    assert again == record
    assert again.seq == first.seq + len(log)


@settings(max_examples=100, deadline=None)
@given(worlds())
def test_a_record_survives_being_stored(world: World) -> None:
    stored = world.record.model_dump_json(exclude_none=True)
    assert JobRecord.model_validate_json(stored) == world.record
