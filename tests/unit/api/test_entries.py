"""A change as it is written: row and event are made from one reading of the record."""

from hypothesis import given, settings

from services.api.domain import Change
from services.api.store import Entry
from shared.contracts.events import encode_event
from shared.lifecycle.advance import advance
from shared.lifecycle.record import JobRecord
from tests.unit.lifecycle.histories import worlds
from tests.unit.lifecycle.world import World


@settings(max_examples=30, deadline=None)
@given(worlds())
def test_the_row_holds_the_whole_record_whatever_its_event_leaves_out(world: World) -> None:
    for step in world.log:
        done = advance(step.before, [step.item], step.now)
        if done.event is None:
            continue
        written = Entry.of(Change(done.record, done.event, step.now, "[]", step.before))
        assert JobRecord.model_validate_json(written.stored) == done.record
        assert written.body == encode_event(done.record, done.event, step.now, before=step.before).body
