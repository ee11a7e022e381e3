"""What the launcher is told at its start."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from shared.runtime.settings import ServiceSettings

Word = Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]{1,40}$")]


class LauncherSettings(ServiceSettings):
    """The settings of every service, and the launcher's own."""

    local_root: Path
    """The root directory of the local backend; its host listens there."""
    clusters: Path | None = None
    """The file that names the Slurm clusters, see `shared/backends/clusters.py`; none without it."""
    deployment: Word = "tidegate"
    """Stands in the names of submissions, so that two deployments on one cluster do not take each other's jobs."""
    stop_grace_seconds: float = Field(default=10, ge=0, le=86_400)
    """Between SIGTERM and SIGKILL, at a stop and at the time limit, where neither the person who stops a job nor the
    job says anything about it."""
    checkpoint_grace_seconds: float = Field(default=60, ge=0, le=86_400)
    """Between the checkpoint signal of a pause and SIGKILL, where the job says nothing about it."""
    launch_lease_seconds: float = Field(default=15, ge=1, le=3600)
    """After this a launch whose launcher went silent is taken over by another; the backend refuses it from then on."""
    restore_window_seconds: float = Field(default=604_800, ge=0)
    """So long the backend's records outlive the seal of their attempt: from them a database that is restored from a
    backup no older than this learns what has run since."""
