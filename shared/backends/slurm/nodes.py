"""sinfo: nodes, what they have, and whether they take work."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shared.backends.slurm import text
from shared.backends.slurm.rows import NoAnswer

_COLUMNS: Final = {
    "NodeList": "NODELIST",
    "Partition": "PARTITION",
    "Available": "AVAIL",
    "StateComplete": "STATECOMPLETE",
    "Gres": "GRES",
    "GresUsed": "GRES_USED",
    "CPUsState": "CPUS(A/I/O/T)",
    "Reason": "REASON",
}

# `gpu:4`, `gpu:a100:4(S:0-1)`, `gpu:a100:2(IDX:0,3)`, `gpu:no_consume:4`; counts may end in K or M.
_GRES = re.compile(
    r"(?<![^,])(?P<name>[^:,()]+(?::(?!no_consume:)[^:,()]+)?)(?::no_consume)?:(?P<count>[0-9]+)(?P<unit>[KMGkmg]?)"
    r"(?:\([^)]*\))?(?:,|$)"
)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

WORKING: Final = frozenset({"idle", "mixed", "allocated", "completing", "planned"})
"""Words of a node that takes jobs, or will once there is room."""
STOPPING: Final[Mapping[str, str]] = {
    "drain": "is drained: jobs on it end, no new one starts",
    "draining": "is drained: jobs on it end, no new one starts",
    "drained": "is drained: no job starts",
    "down": "is down",
    "fail": "is about to fail: no job starts",
    "failing": "is about to fail: no job starts",
    "maint": "is under maintenance",
    "maintenance": "is under maintenance",
    "reserved": "is reserved",
    "reboot": "restarts",
    "reboot_issued": "restarts",
    "reboot_requested": "is to restart",
    "not_responding": "does not answer the controller",
    "no_respond": "does not answer the controller",
    "powered_down": "is switched off",
    "powering_down": "is being switched off",
    "power_down": "is being switched off",
    "powering_up": "is being switched on",
    "invalid_reg": "registered with less than is configured",
    "inval": "registered with less than is configured",
    "blocked": "is blocked by a job that has its neighbours",
    "perfctrs": "is reserved for performance counters",
    "future": "is not there yet",
    "unknown": "has not answered the controller yet",
    "error": "is in error",
}
"""Words of a node on which no job starts now, as what follows its name in a sentence."""


@dataclass(frozen=True, slots=True)
class Node:
    """`states` are Slurm's words in lower case, such as `mixed`, `drain`; `gres` and `used` count by name and type."""

    name: str
    partitions: tuple[str, ...]
    states: tuple[str, ...]
    reason: str | None
    gres: Mapping[str, int]
    used: Mapping[str, int]
    cpus: int
    cpus_used: int

    @property
    def trouble(self) -> str | None:
        """A sentence where no job starts on it now; None for a node in order. A word that nobody knows is trouble."""
        for word in self.states:
            if word not in WORKING:
                why = STOPPING.get(word, f"is in state {word}")
                return f"{self.name} {why}" + (f" ({self.reason})" if self.reason else "")
        return None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the nodes of one partition have of one gres (or of `cpu`): `total` = `allocated` + `unavailable` + free.

    `unavailable` is what nobody has and nobody gets, since its node or the partition takes no jobs.
    """

    partition: str
    gres: str
    total: int
    allocated: int
    unavailable: int


def arguments(separator: str) -> list[str]:
    """One row per node and partition, hidden partitions too."""
    return ["--all", "--Node", "--Format=" + ",".join(f"{column}:{separator}" for column in _COLUMNS)]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All nodes, and the partitions that take no jobs whatever their nodes say. `skipped`: what could not be read."""

    nodes: tuple[Node, ...]
    closed: frozenset[str]
    skipped: tuple[str, ...] = ()


def parse(answer: str, separator: str) -> Inventory | NoAnswer:
    """What a sinfo that ended with 0 says."""
    table = text.table(answer, separator, tuple(_COLUMNS.values()))
    if isinstance(table, str):
        return NoAnswer(f"sinfo could not be read: {table}")
    partitions: dict[str, list[str]] = defaultdict(list)
    nodes: dict[str, dict[str, str]] = {}
    closed: set[str] = set()
    skipped: list[str] = []
    for fields in table.rows:
        field = dict(zip(_COLUMNS, (value.strip() for value in fields), strict=True))
        if not field["NodeList"] or not field["StateComplete"]:
            skipped.append("|".join(fields))
            continue
        partition = field["Partition"].removesuffix("*")
        if field["Available"] != "up":
            closed.add(partition)
        nodes.setdefault(field["NodeList"], field)
        partitions[field["NodeList"]].append(partition)
    found = tuple(_node(name, tuple(partitions[name]), field) for name, field in nodes.items())
    return Inventory(found, frozenset(closed), tuple(skipped))


def capacity(inventory: Inventory) -> tuple[Capacity, ...]:
    """By partition and gres. A node of several partitions counts in each."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for node in inventory.nodes:
        for partition in node.partitions:
            shut = node.trouble is not None or partition in inventory.closed
            for gres, total, used in _amounts(node):
                counted = sums[(partition, gres)]
                counted[0] += total
                counted[1] += used
                counted[2] += max(0, total - used) if shut else 0
    return tuple(Capacity(*key, *counted) for key, counted in sorted(sums.items()))


def _amounts(node: Node) -> Iterable[tuple[str, int, int]]:
    yield "cpu", node.cpus, node.cpus_used
    for gres, total in node.gres.items():
        yield gres, total, node.used.get(gres, 0)


def _node(name: str, partitions: tuple[str, ...], field: Mapping[str, str]) -> Node:
    cpus = [text.whole_number(count) or 0 for count in field["CPUsState"].split("/")]
    return Node(
        name=name,
        partitions=partitions,
        states=tuple(re.findall(r"[a-z_]+", field["StateComplete"].lower())) or ("unknown",),
        reason=text.something(field["Reason"]),
        gres=counts(field["Gres"]),
        used=counts(field["GresUsed"]),
        cpus=cpus[3] if len(cpus) == 4 else 0,
        cpus_used=cpus[0] if len(cpus) == 4 else 0,
    )


def counts(gres: str) -> dict[str, int]:
    """`gpu:a100:4(S:0-1),shard:8` as {gpu:a100: 4, gpu: 4, shard: 8}: each type, and the sum of all types of a name."""
    found: dict[str, int] = defaultdict(int)
    for match in _GRES.finditer("" if text.something(gres) is None else gres.strip()):
        count = int(match["count"][:12]) * _UNITS[match["unit"].lower()]
        for each in {match["name"], match["name"].partition(":")[0]}:
            found[each] += count
    return dict(found)
