"""What sbatch is told of a launch, by the cluster's configuration. Pure."""

import signal
from dataclasses import dataclass
from typing import Final

from shared.backends.clusters import SlurmCluster
from shared.backends.local import layout
from shared.backends.local.messages import LaunchRequest
from shared.backends.local.names import parse_submission_name
from shared.backends.slurm import script
from shared.backends.slurm.orders import Order

COMMENT: Final = "tidegate/1"
_MEBIBYTE: Final = 1 << 20
CONFIGURATION: Final = frozenset(
    {
        "account",
        "constraint",
        "denied",
        "gres",
        "licenses",
        "nodes",
        "partition",
        "partition_denied",
        "path",
        "qos",
        "reservation",
        "script",
        "submissions_disabled",
        "user",
        "wckey",
    }
)
"""Words of refusals that are no fault of the job's: what the operator has configured does not fit the cluster."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """The launch cannot be put to this cluster; `word` as in `LaunchAnswer.reason`."""

    word: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Orders:
    """For sbatch, and for the batch script that it takes."""

    slurm: Order
    runner: script.Order


def comment(token: str, tenant: str) -> str:
    """Says which call of sbatch made the job, and for whom."""
    return f"{COMMENT} {token} {tenant}"


def orders(request: LaunchRequest, cluster: SlurmCluster, root: str, token: str) -> Orders | Misfit:
    """Both, or why there are none."""
    parsed = parse_submission_name(request.submission)
    assert parsed is not None, "the launcher made the name"
    if request.workstation:
        return Misfit("invalid_order", "workstations run on this machine only, as coretype local")
    coretype = cluster.coretypes.get(request.coretype)
    if coretype is None:
        known = ", ".join(sorted(cluster.coretypes))
        return Misfit("configuration", f"the cluster has no coretype {request.coretype}; it has {known}")
    if request.gpus and coretype.gres is None:
        return Misfit("configuration", f"coretype {request.coretype} has no GPUs: its table names no gres")
    if request.gpus % request.nodes:
        return Misfit("invalid_order", f"{request.gpus} GPUs cannot be spread evenly over {request.nodes} nodes")
    here = layout.attempt_directory(root, request.tenant, request.run, parsed[2])
    per_node = request.gpus // request.nodes
    warning = None if request.warning_signal is None else signal.Signals(request.warning_signal).name[3:]
    runner = script.Order(
        submission=request.submission,
        token=token,
        tenant=request.tenant,
        job=request.run,
        run=request.run,
        attempt=parsed[2],
        directory=f"{here}/{request.directory}",
        attempt_directory=here,
        command=request.command,
        environment=request.environment,
        gpus=request.gpus,
        resumed=request.resumed,
        stop_grace_seconds=int(request.stop_grace_seconds),
        warning_signal=warning,
        may_requeue=cluster.may_requeue,
    )
    return Orders(
        Order(
            name=request.submission,
            comment=comment(token, request.tenant),
            script=script.script(runner),
            directory=here,
            output=f"{here}/runner.log",
            error=f"{here}/runner.log",
            account=cluster.account_of(request.tenant),
            partition=coretype.partition,
            constraint=coretype.constraint,
            gres=f"{coretype.gres}:{per_node}" if per_node else None,
            qos=coretype.qos,
            time_limit_seconds=request.time_limit_seconds,
            nodes=request.nodes,
            cpus_per_task=coretype.cpus,
            memory_bytes=None if coretype.memory_mib is None else coretype.memory_mib * _MEBIBYTE,
            signal=None if warning is None else f"B:{script.WARNING_SIGNAL}@{request.warning_seconds}",
            requeue=cluster.may_requeue,
        ),
        runner,
    )
