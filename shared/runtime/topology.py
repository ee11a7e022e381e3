"""Streams and consumers as data, and the one place that creates and updates them.

`python -m shared.runtime.topology` does so with the administrator's login in TIDEGATE_NATS_URL, _USER and _PASSWORD.
With `--keep` it stays, and does so again whenever the broker is back and every 5 s: a store that was lost is made anew.
"""

import asyncio
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import nats
from nats.errors import Error as NatsError
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NotFoundError

from shared.contracts.subjects import FILTERS
from shared.runtime.errors import LoginRefused, SettingsError
from shared.runtime.settings import BrokerSettings

DUPLICATE_WINDOW_SECONDS: Final = 120.0
ACK_WAIT_SECONDS: Final = 10.0
"""A killed service's messages come back after this; a living one says `in progress` every third of it."""
MAX_DELIVER: Final = 8
"""Tries of a message before the runtime parks it. The broker itself counts without a limit, because a message over its
limit would stay in the stream, delivered to nobody, and look like an idle consumer."""
_WEEK: Final = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream: limits retention, on disk, duplicates dropped within the window."""

    name: str
    subjects: tuple[str, ...]
    max_age_seconds: float = _WEEK
    max_per_subject: int = -1
    atomic: bool = True
    """Relays publish batches into it."""
    one_publisher: bool = False
    """One service alone publishes into it."""

    def config(self, replicas: int) -> StreamConfig:
        """What the broker is to have."""
        return StreamConfig(
            name=self.name,
            subjects=list(self.subjects),
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            discard=DiscardPolicy.OLD,
            max_age=self.max_age_seconds,
            max_msgs_per_subject=self.max_per_subject,
            duplicate_window=DUPLICATE_WINDOW_SECONDS,
            allow_atomic=self.atomic,
            allow_direct=True,
            num_replicas=replicas,
        )


@dataclass(frozen=True, slots=True)
class Consumer:
    """A durable pull consumer that reads what its filters name."""

    name: str
    stream: str
    filters: tuple[str, ...]

    def config(self) -> ConsumerConfig:
        """What the broker is to have."""
        return ConsumerConfig(
            name=self.name,
            durable_name=self.name,
            filter_subjects=list(self.filters),
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_WAIT_SECONDS,
            max_deliver=-1,
            max_ack_pending=5000,
        )


STREAMS: Final = {
    stream.name: stream
    for stream in (
        Stream("JOBS", ("jobs.v1.>",), one_publisher=True),
        Stream("FACTS", ("facts.v1.>",)),
        Stream("CLUSTERS", ("clusters.v1.>",), max_age_seconds=0, max_per_subject=1),
        Stream("USAGE", ("usage.v1.>",), one_publisher=True),
    )
}


def stream_of(subject: str) -> str:
    """The stream that stores `subject`; a subject that none stores is an error of the caller."""
    name = subject.split(".", 1)[0].upper()
    if name not in STREAMS:
        raise ValueError(f"no stream stores {subject!r}; those stored begin with jobs, facts, clusters or usage")
    return name


CONSUMERS: Final = {name: Consumer(name, stream_of(filters[0]), filters) for name, filters in FILTERS.items()}


async def ensure(js: JetStreamContext, *, replicas: int = 1) -> list[str]:
    """Create what is missing and update what differs; says what it did, nothing when all was right."""
    done: list[str] = []
    for stream in STREAMS.values():
        done += await _ensure_stream(js, stream.config(replicas))
    for consumer in CONSUMERS.values():
        done += await _ensure_consumer(js, consumer)
    return done


async def _ensure_stream(js: JetStreamContext, wanted: StreamConfig) -> list[str]:
    name = str(wanted.name)
    try:
        present = (await js.stream_info(name)).config
    except NotFoundError:
        await js.add_stream(wanted)
        return [f"stream {name} created"]
    if differing := _differences(wanted, present):
        await js.update_stream(wanted)
        return [f"stream {name} updated: {', '.join(differing)}"]
    return []


async def _ensure_consumer(js: JetStreamContext, consumer: Consumer) -> list[str]:
    wanted = consumer.config()
    try:
        present = (await js.consumer_info(consumer.stream, consumer.name)).config
    except NotFoundError:
        await js.add_consumer(consumer.stream, wanted)
        return [f"consumer {consumer.name} created"]
    wanted.deliver_policy, wanted.opt_start_time = present.deliver_policy, present.opt_start_time  # as `rewind` made it
    if present.filter_subjects is None and present.filter_subject is not None:
        present.filter_subjects = [present.filter_subject]  # the server folds a single filter into the older field
    if differing := _differences(wanted, present):
        await js.add_consumer(consumer.stream, wanted)
        return [f"consumer {consumer.name} updated: {', '.join(differing)}"]
    return []


async def rewind(js: JetStreamContext, consumer: str, since: datetime) -> None:
    """Have the durable consumer deliver everything again that was stored at `since` or later, and nothing older.

    It is made anew, so whatever is held by a handler at that moment is delivered again as well.
    """
    data = CONSUMERS[consumer]
    wanted = data.config()
    wanted.deliver_policy, wanted.opt_start_time = DeliverPolicy.BY_START_TIME, since
    with suppress(NotFoundError):
        await js.delete_consumer(data.stream, data.name)
    await js.add_consumer(data.stream, wanted)


def _differences(wanted: StreamConfig | ConsumerConfig, present: StreamConfig | ConsumerConfig) -> list[str]:
    """The fields that we set and that the broker has otherwise; what it adds by itself does not count."""
    return [
        field
        for field, value in vars(wanted).items()
        if value is not None and _plain(value) != _plain(getattr(present, field))
    ]


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, list) else (value or None)


async def _raised_anyway(_: Exception) -> None:
    """Without this nats-py prints a traceback of what `connect` raises."""


async def _once(settings: BrokerSettings) -> None:
    connection = await nats.connect(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password.get_secret_value(),
        inbox_prefix=f"_INBOX_{settings.nats_user}",
        allow_reconnect=False,
        error_cb=_raised_anyway,
    )
    try:
        for line in await ensure(connection.jetstream()):
            sys.stdout.write(line + "\n")
    finally:
        await connection.close()


def main(arguments: list[str]) -> None:
    """`python -m shared.runtime.topology [--keep]`."""
    match arguments:
        case []:
            asyncio.run(_once(BrokerSettings.load()))
        case ["--keep"]:
            from shared.runtime import upkeep  # which imports this module

            asyncio.run(upkeep.run(BrokerSettings.load()))
        case _:
            raise SettingsError("usage: python -m shared.runtime.topology [--keep]")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (SettingsError, LoginRefused, NatsError, APIError, OSError) as error:
        sys.exit(f"topology: {error}")
