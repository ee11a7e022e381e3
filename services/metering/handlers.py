"""What metering does with job events, and what it answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from opentelemetry import metrics

from services.metering.domain import change, newest, readings
from services.metering.store import Store, usage_sql
from shared.contracts.events import decode_event
from shared.contracts.queries import UsageAnswer, UsageAsked, UsageRest, UsageRow
from shared.contracts.usage import encode_line
from shared.runtime.database import Database
from shared.runtime.messages import Delivery
from shared.runtime.outbox import Outgoing

_meter = metrics.get_meter("tidegate")
_lines = _meter.create_counter("tidegate_metering_lines", description="Ledger lines written, reversals among them")
_skewed = _meter.create_counter("tidegate_metering_skewed", description="Segments that ended before they started")


class Metering:
    """Keeps segments by their keys, whatever the order in which messages come."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def on_events(self, deliveries: Sequence[Delivery]) -> None:
        """Read the segments of a batch of events; what ended gets its line. Safe to redeliver, late, out of order."""
        events = [decode_event(delivery.body) for delivery in deliveries if carries_segments(delivery.body)]
        found = newest(one for event in events for one in readings(event))
        if not found:
            return
        async with self._db.transaction() as tx:
            store = Store(tx)
            known = await store.lock(list(found.values()))
            changes = [one for id_, reading in found.items() if (one := change(known[id_], reading)) is not None]
            lines = [line for one in changes for line in one.lines]
            await store.write(changes)
            wires = [encode_line(line) for line in lines]
            await tx.enqueue([Outgoing(wire.subject, wire.msg_id, wire.key, wire.body) for wire in wires])
        _lines.add(len(lines))
        _skewed.add(sum(one.reading.skewed and bool(one.lines) for one in changes))

    async def usage(self, request: bytes) -> bytes:
        """UsageAsked -> UsageAnswer: GPU time of segments that have ended."""
        asked = UsageAsked.model_validate_json(request)
        rows = await self._db.fetch(usage_sql(asked.group_by), asked.tenant, asked.job, max(0, asked.limit))
        shown = tuple(UsageRow.model_validate(dict(row)) for row in rows)
        answer = UsageAnswer(rows=shown, rest=_rest(dict(rows[0]), shown) if rows else None)
        return answer.model_dump_json().encode()


def _rest(sums: Mapping[str, Any], shown: Sequence[UsageRow]) -> UsageRest | None:
    """What the rows leave out of the sums over all."""
    if sums["all_groups"] == len(shown):
        return None
    return UsageRest(
        groups=sums["all_groups"] - len(shown),
        segments=sums["all_segments"] - sum(row.segments for row in shown),
        gpu_milliseconds=sums["all_gpu_milliseconds"] - sum(row.gpu_milliseconds for row in shown),
        not_billable_gpu_milliseconds=sums["all_not_billable_gpu_milliseconds"]
        - sum(row.not_billable_gpu_milliseconds for row in shown),
    )


def carries_segments(body: bytes) -> bool:
    """Whether an event is worth reading: until the backend has the job there is nothing in it for the meter.

    What is not of an event's form is to be read, so that it is refused with the reason.
    """
    event = orjson.loads(body)
    try:
        return bool(event.get("corrected") or event["job"]["attempts"][-1].get("segments"))
    except (LookupError, TypeError, AttributeError):
        return True
