"""What the stager is told at its start."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.runtime.settings import ServiceSettings

Count = Annotated[int, Field(ge=1)]


class StagerSettings(ServiceSettings):
    """The settings of every service, and the stager's own."""

    blob_url: Annotated[str, Field(min_length=1)]
    """Where snapshots are and outputs go: `file:///…`, `s3://…`, `gs://…`, `az://…`."""
    local_root: Path
    """The root directory of the local backend."""
    job_path: str | None = None
    """PATH of a job that sets none, to look programs up on; by default what the local backend gives its jobs."""
    staging_lease_seconds: float = Field(default=15, ge=1, le=3600)
    """After this an attempt whose stager went silent is taken over by another, in a directory of its own."""
    staging_workers: Annotated[int, Field(ge=1, le=64)] = 3
    """Attempts that are staged in at once, and as many that are copied back at once."""
    staging_tries: Annotated[int, Field(ge=1, le=100)] = 8
    """How often a store that is away is tried (over about a minute) before staging or copying back fails for good."""
    staging_audit_seconds: float = Field(default=600, ge=1)
    """`api` is asked about an attempt that is staged and was not heard of for so long."""
    restore_window_seconds: float = Field(default=604_800, ge=0)
    """How old the backup may be that the database is restored from: for so long what fences the attempts of a deleted
    job outlives it, and its rows do."""
    snapshot_files_max: Count = 200_000
    snapshot_bytes_max: Count = 256 << 30
    output_files_max: Count = 1_000_000
    output_bytes_max: Count = 4 << 40
