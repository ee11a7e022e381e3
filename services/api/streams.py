"""Server-sent events out of the log: resumed without a gap or a duplicate, alive while idle, ended on shutdown."""

from collections.abc import AsyncIterator
from typing import Final

from services.api.feed import Feed
from services.api.reads import Logged, Reads
from shared.lifecycle.states import TERMINAL

KEEP_ALIVE_SECONDS: Final = 15.0
KEEP_ALIVE: Final = b": alive\n\n"
_READ: Final = 500
_ENDS: Final = frozenset(state.lower() for state in TERMINAL)
_NO_CHANGE: Final = frozenset({"evidence", "reset"})


def encoded(event: Logged, id_: str) -> bytes:
    """One event of the stream; its body is one line of JSON."""
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event.type.encode(), id_.encode(), event.body)


def position_mark(id_: str) -> bytes:
    """Sets the reader's last event id without an event, so that a stream that breaks before the first resumes right."""
    return b"id: %b\n\n" % id_.encode()


async def of_tenant(feed: Feed, tenant: str, after: int | None) -> AsyncIterator[bytes]:
    """Every event of the tenant after a position, or from now on; until the client goes or the process stops."""
    async with feed.tail(tenant) as tail:
        position = tail.position if after is None else after
        yield position_mark(str(position))
        while not feed.closing:
            events = tail.after(position)
            if events is None:
                events = await feed.read(tenant, position)
            for event in events:
                position = event.position
                yield encoded(event, str(position))
            if not events and not await tail.changed(KEEP_ALIVE_SECONDS):
                yield KEEP_ALIVE


async def of_job(
    feed: Feed, reads: Reads, tenant: str, job: str, after: tuple[int, int], *, ended: bool, for_ever: bool
) -> AsyncIterator[bytes]:
    """The job's events after `(epoch, seq)`; ends with the job, unless it is to go on for ever: until it is deleted."""
    async with feed.tail(tenant) as tail:
        position = tail.position
        last, behind, deleted = after, True, False
        yield b": begins\n\n"
        while not feed.closing:
            if behind:
                position = tail.position  # everything up to here is committed, so the log has it
                events = await reads.log(tenant, job, last, _READ)
                behind = len(events) == _READ
            else:
                tailed = tail.after(position)
                behind = tailed is None
                position = tail.position
                events = [event for event in tailed or () if event.job == job and (event.epoch, event.seq) > last]
            for event in events:
                last = (event.epoch, event.seq)
                deleted = event.type == "deleted"
                ended = ended if event.type in _NO_CHANGE else event.type in _ENDS or deleted
                yield encoded(event, f"{event.epoch}-{event.seq}")
            if behind or events:
                continue
            if deleted or (ended and not for_ever):
                return
            if not await tail.changed(KEEP_ALIVE_SECONDS):
                yield KEEP_ALIVE
