"""What is asked of sbatch."""

from __future__ import annotations

from dataclasses import dataclass

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """One submission. `name` and `comment` are how it is found again when sbatch's answer is lost.

    `gres` is per node. `output` and `error` are paths as they are: nothing in them is replaced.
    """

    name: str
    comment: str
    script: str
    directory: str
    output: str
    error: str
    account: str | None = None
    partition: str | None = None
    constraint: str | None = None
    gres: str | None = None
    qos: str | None = None
    time_limit_seconds: float | None = None
    nodes: int | None = None
    cpus_per_task: int | None = None
    memory_bytes: int | None = None
    signal: str | None = None
    """As sbatch takes it: `B:TERM@60` sends TERM to the batch script a minute before the time limit."""
    requeue: bool = False
    """May Slurm start it again after a node's failure or a preemption?"""
    hold: bool = False


def arguments(order: Order) -> list[str]:
    """sbatch's options. Each stands in one word with its value, so that no value is taken for an option.

    `--export=ALL`, of an environment that is nearly empty: with NONE slurmd starts a login shell of the user on the
    node, which took 3 to 4 s a job. A requeued run appends to the output of the run before.
    """
    words = [
        "--parsable",
        f"--job-name={order.name}",
        f"--comment={order.comment}",
        f"--chdir={order.directory}",
        f"--output={_path(order.output)}",
        f"--error={_path(order.error)}",
        "--open-mode=append",
        "--export=ALL",
        "--requeue" if order.requeue else "--no-requeue",
    ]
    given = {
        "account": order.account,
        "partition": order.partition,
        "constraint": order.constraint,
        "gres": order.gres,
        "qos": order.qos,
        "time": _up(order.time_limit_seconds, 60),
        "nodes": order.nodes,
        "cpus-per-task": order.cpus_per_task,
        "mem": f"{_up(order.memory_bytes, _MEBIBYTE)}M" if order.memory_bytes is not None else None,
        "signal": order.signal,
    }
    words += [f"--{option}={value}" for option, value in given.items() if value is not None]
    return [*words, "--hold"] if order.hold else words


def _up(amount: float | None, unit: int) -> int | None:
    """In whole units, rounded up, and one at least: sbatch takes 0 for no limit at all."""
    return None if amount is None else max(1, -int(-amount // unit))


def _path(path: str) -> str:
    """`%j` and its like are sbatch's own patterns; `%%` is one `%`."""
    return path.replace("%", "%%")
