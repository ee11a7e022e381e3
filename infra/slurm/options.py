"""What a test cluster is to be like."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Self

PARTITIONS: Final[Mapping[str, str]] = {
    "debug": "Default=YES MaxTime=INFINITE DefaultTime=60 PriorityTier=5 PreemptMode=OFF",
    "short": "MaxTime=5",
    "high": "DefaultTime=60 PriorityTier=10 PreemptMode=OFF",
    "low": "DefaultTime=60 PriorityTier=1 PreemptMode=CANCEL GraceTime=0",
    "lowrq": "DefaultTime=60 PriorityTier=1 PreemptMode=REQUEUE",
    "down": "State=DOWN",
    "inactive": "State=INACTIVE",
}
"""`high` takes the place of jobs in `low` (they are cancelled) and in `lowrq` (they are requeued)."""


@dataclass(frozen=True)
class Options:
    """Of one cluster of one node."""

    name: str = "tidetest"
    """The cluster's, as sacct tells it."""
    cpus: int = 16
    """As many jobs of one core run at once, whatever the machine has."""
    gpus: int = 4
    """Device nodes without a device behind them: Slurm counts them and tells a job which are its."""
    memory_mb: int = 32_000
    min_job_age_seconds: int = 300
    """For so long after its end the controller remembers a job."""
    requeue_seconds: int = 5
    """A requeued job waits this and a second more before it may start again."""
    accounting: bool = True
    """False leaves out slurmdbd and MariaDB: sacct does not work."""
    memory_limits: bool = False
    """True has the kernel enforce a job's memory (`missing.why_no_memory_limits`); without, Slurm samples and kills."""
    partitions: Mapping[str, str] = field(default_factory=lambda: dict(PARTITIONS))
    """By name, what slurm.conf says of it beside its nodes."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of slurm.conf, or other than its template says."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(**value)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
