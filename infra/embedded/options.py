"""What `tidegate up` may be told."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self


@dataclass(frozen=True)
class Options:
    """How a stack is to be started."""

    home: Path
    http_port: int | None = None
    """None takes the port of last time, else 8420 where it is free."""
    virtual_gpus: int | None = None
    """None hands out the machine's real GPUs, or 8 virtual ones where it has none."""
    slots: int | None = None
    """Jobs that run at once on this machine; None leaves it to the runner host."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """How many processes each service has; one where it is not named."""
    clusters: Path | None = None
    """The file that names Slurm clusters, see `shared/backends/clusters.py`."""
    detach: bool = False
    allow_tenants: bool = False
    """More than one tenant also without root, where their jobs run under one uid and can read each other's files."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "home": str(self.home),
            "clusters": None if self.clusters is None else str(self.clusters),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        clusters = None if value["clusters"] is None else Path(value["clusters"])
        return cls(**(dict(value) | {"home": Path(value["home"]), "clusters": clusters}))
