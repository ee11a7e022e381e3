"""Every subject that crosses a service's boundary, who may publish it and who reads it.

Job ids never stand in a subject (NATS keeps state per distinct subject): they travel in headers and bodies. The NATS
permissions and the consumers' filters are derived from this module, so that what is written here is what is enforced.
"""

import re
from typing import Final

SERVICES: Final = ("api", "gatekeeper", "stager", "launcher", "watcher", "metering")
"""The services with a schema, a login role and a NATS user of their own."""

JOB_EVENTS: Final = (
    "queued",
    "submitted",
    "pending",
    "running",
    "paused",
    "succeeded",
    "failed",
    "stopped",
    "held",
    "stage",
    "desired",
    "evidence",
    "reset",
    "deleted",
)
"""Event tokens of `jobs.v1.<tenant>.<event>`: the state entered, or what else changed."""

FACT_KINDS: Final[dict[str, tuple[str, ...]]] = {
    "gatekeeper": ("admitted", "held", "policy_stop", "policy_pause"),
    "stager": ("input_valid", "input_invalid", "staged", "staging_failed", "staging_sealed", "recopied"),
    "launcher": ("accepted", "launch_refused", "launcher_sealed", "gpus_freed"),
    "watcher": ("seen_pending", "seen_running", "segment_requeued", "exited", "lost", "seen_idle", "policy_pause"),
}
"""The facts that each service may report: `api` refuses any other pair."""

_TOKEN = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def is_tenant_name(name: str) -> bool:
    """Whether `name` may be a tenant: 1-40 of a-z, 0-9 and inner dashes: one subject token and one path part."""
    return _TOKEN.fullmatch(name) is not None


def job_subject(tenant: str, event: str) -> str:
    """Where `api` publishes a job event."""
    return f"jobs.v1.{tenant}.{event}"


def fact_subject(service: str, kind: str) -> str:
    """Where `service` reports a fact; `api` takes the sender from the subject, which NATS permissions protect."""
    return f"facts.v1.{service}.{kind}"


def cluster_subject(cluster: str, kind: str) -> str:
    """Where the watcher reports a cluster's capacity and reachability; the stream keeps the last one per subject, so a
    cluster of several coretypes has one each: `capacity.<coretype>`."""
    return f"clusters.v1.{cluster}.{kind}"


def usage_subject(tenant: str, kind: str) -> str:
    """Where metering reports ledger lines."""
    return f"usage.v1.{tenant}.{kind}"


def rpc_subject(service: str, method: str) -> str:
    """Where `service` answers queries about its slice (core NATS, no stream)."""
    return f"rpc.v1.{service}.{method}"


def logs_subject(tenant: str) -> str:
    """Where live log lines go while somebody tails (core NATS, no stream)."""
    return f"logs.v1.{tenant}"


def _job_filter(*events: str) -> tuple[str, ...]:
    return tuple(job_subject("*", event) for event in events)


_ENDS: Final = ("paused", "succeeded", "failed", "stopped", "reset", "deleted")
_MOVES: Final = ("pending", "running", "stage", "desired", "evidence")

FILTERS: Final[dict[str, tuple[str, ...]]] = {
    "gatekeeper": _job_filter("queued", "held", *_MOVES, *_ENDS),
    "stager": _job_filter("submitted", *_MOVES, *_ENDS),
    "launcher": _job_filter("submitted", *_MOVES, *_ENDS),
    "watcher": _job_filter(*_MOVES, *_ENDS),
    "metering": _job_filter("queued", *_MOVES, *_ENDS),
    "api": ("facts.v1.>",),
    "gatekeeper_clusters": ("clusters.v1.>",),
}
"""What each durable consumer reads: `<service>` on JOBS, `api` on FACTS, `gatekeeper_clusters` on CLUSTERS.

Metering reads `queued` because an automatic retry closes the last attempt's segments in that event.
"""
