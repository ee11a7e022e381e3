"""What each NATS user may publish and hear, derived from the subjects, the facts and the consumers of the product.

A service reads streams through its own durables only, publishes its own facts only, and hears nobody else's answers.
"""

from dataclasses import dataclass
from typing import Final

from shared.contracts.subjects import (
    FACT_KINDS,
    FILTERS,
    SERVICES,
    cluster_subject,
    fact_subject,
    job_subject,
    logs_subject,
    rpc_subject,
    usage_subject,
)
from shared.runtime.broker import inbox_prefix, nudge_subject
from shared.runtime.topology import CONSUMERS, STREAMS, stream_of

ADMIN: Final = "admin"
"""Creates streams and consumers; no service knows its password."""

_PUBLISHES: Final = {
    "api": (job_subject("*", "*"),),
    "watcher": (cluster_subject("*", ">"), logs_subject("*")),
    "metering": (usage_subject("*", "*"),),
}
_LOOKS_AT: Final = {"api": tuple(CONSUMERS), "gatekeeper": ("gatekeeper",)}
"""Consumers of which a service may know how far they are."""
_READS_AGAIN: Final = {"metering": ("USAGE",)}
"""Streams whose messages a service may look up: its own, to see what it sent before a restore of the database."""
_HEARS: Final = {"api": (logs_subject("*"),)}
_CONSUMERS_OF: Final = {"api": ("api",), "gatekeeper": ("gatekeeper", "gatekeeper_clusters")}
"""Durables by service, where they are not one of the service's own name."""


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects; everything else is denied."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def of_service(service: str) -> Permissions:
    """What the service's user may do."""
    owned = (*(fact_subject(service, kind) for kind in FACT_KINDS.get(service, ())), *_PUBLISHES.get(service, ()))
    stored = {stream_of(subject) for subject in owned if subject.split(".", 1)[0].upper() in STREAMS}
    facts = [subject for subject in owned if subject.startswith("facts.")]
    durables = [CONSUMERS[name] for name in _CONSUMERS_OF.get(service, (service,)) if name in FILTERS]
    return Permissions(
        publish=(
            *owned,
            rpc_subject("*", "*"),
            nudge_subject(service),
            *(f"$JS.API.STREAM.INFO.{stream}" for stream in sorted(stored)),
            *(f"$JS.API.DIRECT.GET.{stream_of(subject)}.{subject}" for subject in facts),
            *(f"$JS.API.DIRECT.GET.{stream}" for stream in _READS_AGAIN.get(service, ())),
            *(f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}" for durable in durables),
            *(f"$JS.ACK.{durable.stream}.{durable.name}.>" for durable in durables),
            *(f"$JS.API.CONSUMER.INFO.{CONSUMERS[name].stream}.{name}" for name in _LOOKS_AT.get(service, ())),
        ),
        subscribe=(
            f"{inbox_prefix(service)}.>",
            rpc_subject(service, "*"),
            nudge_subject(service),
            *_HEARS.get(service, ()),
        ),
    )


ALL: Final = {service: of_service(service) for service in SERVICES}
"""The permissions of every service's user; `admin` has none to keep to."""
