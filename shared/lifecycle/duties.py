"""Who owes what for a record: consumers decide from the record, never from an event's name."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from shared.lifecycle.picture import Picture, picture
from shared.lifecycle.record import JobRecord
from shared.lifecycle.states import ACTIVE, Desired, State
from shared.lifecycle.verdict import over_budget


class Duty(StrEnum):
    """An answer that a service owes. The guarded row of its slice says whether it has given it already."""

    ADMIT = "admit"
    """gatekeeper: admit it, or say which gates hold it."""
    STAGE_IN = "stage in"
    """stager: validate the input, stage it in."""
    COPY_BACK = "copy back"
    """stager: copy the outputs back, then vote."""
    SEAL_STAGING = "seal staging"
    """stager: vote without copying."""
    RECOPY = "recopy"
    """stager: copy the outputs again, outside the attempt."""
    LAUNCH = "launch"
    """launcher: hand it to the backend exactly once."""
    STOP = "stop"
    """launcher: ask the command to end (signal, grace, kill), revoke, then vote."""
    SEAL_LAUNCH = "seal launch"
    """launcher: make sure that nothing runs or can start, free the GPUs, then vote."""
    OBSERVE = "observe"
    """watcher: say what the backend shows."""


OWED_BY: Final[Mapping[Duty, str]] = MappingProxyType(
    {
        Duty.ADMIT: "gatekeeper",
        **dict.fromkeys((Duty.STAGE_IN, Duty.COPY_BACK, Duty.SEAL_STAGING, Duty.RECOPY), "stager"),
        **dict.fromkeys((Duty.LAUNCH, Duty.STOP, Duty.SEAL_LAUNCH), "launcher"),
        Duty.OBSERVE: "watcher",
    }
)
"""The service that owes it, which is also the name of the consumer through which it hears."""


def duties(record: JobRecord) -> frozenset[Duty]:
    """Everything that is owed for the record's current attempt, by whomever."""
    if record.deleted:
        return frozenset()
    if record.state is State.QUEUED:
        return frozenset({Duty.ADMIT})
    if record.state not in ACTIVE:
        return frozenset({Duty.RECOPY}) if record.recopy is not None else frozenset()
    seen = picture(record.current)
    owed = {_stager(record, seen), _launcher(record, seen)}
    if seen.exited is None and (seen.latest is not None or seen.ran):
        owed.add(Duty.OBSERVE)
    return frozenset(duty for duty in owed if duty is not None)


def _stager(record: JobRecord, seen: Picture) -> Duty | None:
    if seen.stager_voted:
        return None
    if seen.input_invalid is not None or seen.staging_failed is not None:
        return Duty.SEAL_STAGING
    if seen.staged is None:
        return Duty.STAGE_IN if record.desired_state is Desired.RUN else Duty.SEAL_STAGING
    if seen.exited is not None or (seen.lost is not None and seen.launcher_sealed is not None):
        return Duty.COPY_BACK
    over = seen.refused is not None or seen.launcher_sealed is not None
    return Duty.SEAL_STAGING if over and not seen.ran else None


def _launcher(record: JobRecord, seen: Picture) -> Duty | None:
    if not seen.launcher_asked or seen.launcher_voted:
        return None
    if seen.end_known or seen.refused is not None or over_budget(record):
        return Duty.SEAL_LAUNCH
    if record.desired_state is not Desired.RUN:
        return Duty.STOP
    return Duty.LAUNCH if seen.latest is None and seen.accepted is None else None


def holdings(record: JobRecord) -> tuple[bool, bool]:
    """Whether the current attempt holds (or has reserved) its GPUs, and whether it occupies its job slot.

    GPUs are let go with the fact `gpus_freed`; an attempt that the launcher was never asked about lets go at its end.
    """
    slot = record.state in ACTIVE
    if record.resources.gpus == 0 or record.gpus_freed:
        return False, slot
    return slot or (record.current.admission is not None and picture(record.current).launcher_asked), slot
