"""What the watcher is told at its start."""

from pathlib import Path

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class WatcherSettings(ServiceSettings):
    """The settings of every service, and the watcher's own."""

    local_root: Path
    """The root directory of the local backend, as the launcher has it."""
    clusters: Path | None = None
    """The file that names the Slurm clusters, as the launcher has it."""
    deployment: str = "tidegate"
    """Stands in the names of submissions, as the launcher has it: other deployments' jobs are strangers'."""
    lost_after_seconds: float = Field(default=60, ge=1)
    """So long must complete observations show nothing of a submission before it is lost."""
    idle_warning_seconds: float = Field(default=300, ge=0)
    """So long before it an idle workstation's suspension is announced, or half of its limit where that is less."""
