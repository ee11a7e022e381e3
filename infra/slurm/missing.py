"""What this machine lacks for a test cluster."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SEARCHED: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo")
_FOR_ACCOUNTING: Final = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr")
_MEMORY: Final = Path("/sys/fs/cgroup/memory")


def why_no_cluster(*, accounting: bool = True) -> str | None:
    """Why a cluster cannot be started here, and what to do; None where it can."""
    if os.geteuid() != 0:
        return "a Slurm test cluster needs root"
    programs: Sequence[str] = _PROGRAMS + (_FOR_ACCOUNTING if accounting else ())
    for program in programs:
        if shutil.which(program, path=SEARCHED) is None:
            return f"Slurm is not installed (there is no {program}): infra/slurm/install.sh brings it"
    return None


def why_no_memory_limits() -> str | None:
    """Why the kernel cannot enforce the memory of jobs here; None where it can."""
    if not (_MEMORY / "memory.limit_in_bytes").exists():
        return f"memory limits need cgroup v1, and {_MEMORY} is none"
    probe = _MEMORY / f"tidegate-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"memory limits need a folder of their own in {_MEMORY}: {error.strerror}"
    return None
