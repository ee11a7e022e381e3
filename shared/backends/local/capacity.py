"""What this machine could take, from the host's record and an observation: no question to the host."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from shared.backends.local import layout, processes
from shared.backends.local.files import read_record
from shared.backends.local.observer import LocalState, Observation

_HOLDS = frozenset({LocalState.ACCEPTED, LocalState.CLAIMED, LocalState.RUNNING})


@dataclass(frozen=True, slots=True)
class Capacity:
    """Everything of this machine, and what no live submission holds. Without `host_alive` nothing can be launched."""

    gpus_total: int
    gpus_free: int
    virtual: bool
    slots_total: int
    slots_free: int
    host_alive: bool


def capacity(root: str | Path, observation: Observation) -> Capacity | None:
    """None when no host has ever recorded what there is, or when that could not be read: no information, not zero."""
    try:
        record = read_record(f"{os.fspath(root)}/{layout.HOST_RECORD}")
    except OSError:
        return None
    if record is None:
        return None
    gpus_total, slots_total = record.get("gpus_total"), record.get("slots_total")
    if type(gpus_total) is not int or type(slots_total) is not int:
        return None
    live = [seen for seen in observation.submissions if seen.state in _HOLDS]
    held = {device for seen in live if seen.spec is not None for device in seen.spec.devices}
    return Capacity(
        gpus_total=gpus_total,
        gpus_free=max(0, gpus_total - len(held)),
        virtual=record.get("virtual") is True,
        slots_total=slots_total,
        slots_free=max(0, slots_total - len(live)),
        host_alive=processes.is_alive(record.get("host"), processes.boot_id()),
    )
