"""Why a job waits in Slurm's queue, in words; and whether it waits for what will never come.

The names are those of `squeue -o %r` (slurm.h, job_state_reason). One that is not here is passed on as it is.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Waiting:
    """`stuck`: it will not start before somebody acts, so it is ended after a grace."""

    sentence: str
    stuck: bool = False


_STUCK: Final = True

_REASONS: Final[Mapping[str, Waiting]] = MappingProxyType(
    {
        "None": Waiting("Slurm has not looked at it yet"),
        "Resources": Waiting("it is next in line and waits for nodes, cores or GPUs to become free"),
        "Priority": Waiting("jobs of a higher priority are before it"),
        "Dependency": Waiting("a job that it depends on has not ended"),
        "DependencyNeverSatisfied": Waiting("a job that it depends on has ended otherwise than it needs", _STUCK),
        "BeginTime": Waiting("it may not start before its begin time"),
        "JobHeldUser": Waiting("its owner holds it in Slurm", _STUCK),
        "JobHeldAdmin": Waiting("an administrator of the cluster holds it", _STUCK),
        "launch failed requeued held": Waiting("its launch failed on the node, and Slurm holds it", _STUCK),
        "JobHoldMaxRequeue": Waiting("it was requeued more often than Slurm allows, and is held", _STUCK),
        "job requeued in held state": Waiting("somebody requeued it and holds it", _STUCK),
        "PartitionDown": Waiting("its partition is down"),
        "PartitionInactive": Waiting("its partition takes no jobs now", _STUCK),
        "PartitionConfig": Waiting("it asks for more than its partition allows", _STUCK),
        "PartitionNodeLimit": Waiting("it asks for more nodes than its partition allows", _STUCK),
        "PartitionTimeLimit": Waiting("its time limit is longer than its partition allows", _STUCK),
        "NodeDown": Waiting("a node that it needs is down"),
        "ReqNodeNotAvail": Waiting("a node that it needs is not available now"),
        "BadConstraints": Waiting("no node can meet its constraints", _STUCK),
        "Licenses": Waiting("a licence that it needs is in use"),
        "Reservation": Waiting("its reservation has not begun"),
        "ReservationDeleted": Waiting("its reservation was deleted", _STUCK),
        "Prolog": Waiting("the prolog of its nodes runs"),
        "Cleaning": Waiting("what an earlier run left is being cleaned up"),
        "InvalidAccount": Waiting("its account is not valid on this cluster", _STUCK),
        "InvalidQOS": Waiting("its QOS is not valid on this cluster", _STUCK),
        "AccountNotAllowed": Waiting("its account may not use this partition", _STUCK),
        "QOSNotAllowed": Waiting("its QOS may not be used in this partition", _STUCK),
        "AssociationJobLimit": Waiting("its account has as many jobs as it may"),
        "AssociationResourceLimit": Waiting("its account uses as much as it may"),
        "AssociationTimeLimit": Waiting("its account has used up its time", _STUCK),
        "MaxRequeue": Waiting("it was requeued more often than Slurm allows", _STUCK),
        "NodesBusy": Waiting("the nodes that it needs are busy"),
        "BurstBufferStageIn": Waiting("its burst buffer is being filled"),
        "BurstBufferResources": Waiting("it waits for room in the burst buffer"),
    }
)
_FAMILIES: Final[tuple[tuple[re.Pattern[str], Waiting], ...]] = (
    (re.compile(r"QOS\w*(PerUser|PerAccount|Limit)\w*"), Waiting("a limit of its QOS is reached")),
    (re.compile(r"QOS(Max|Min|Grp|Usage|Resource|Time|Job)\w*"), Waiting("a limit of its QOS is reached")),
    (
        re.compile(r"(Assoc|Max|Association)\w*(PerAccount|PerUser|Limit)\w*"),
        Waiting("a limit of its account is reached"),
    ),
    (re.compile(r"Assoc(Max|Grp)\w*"), Waiting("a limit of its account is reached")),
)
_NODES: Final = re.compile(r", *UnavailableNodes:.*")


def waiting(reason: str | None) -> Waiting:
    """What a reason says; `Nodes required for job are DOWN, …` and the like begin a sentence of Slurm's own."""
    if not reason:
        return _REASONS["None"]
    known = _REASONS.get(reason) or _REASONS.get(reason.split(",")[0].strip())
    if known is not None:
        return known
    for family, said in _FAMILIES:
        if family.fullmatch(reason):
            return said
    return Waiting("Slurm says why in its own words")


def told(reason: str | None) -> str:
    """The word and the sentence, as a person is shown them. Without the nodes that are not available now: they come and
    go all the time, and each change would be told of every job that waits."""
    return f"{_NODES.sub('', reason or 'None')}: {waiting(reason).sentence}"
