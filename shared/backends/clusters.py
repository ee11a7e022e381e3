"""Which Slurm clusters a deployment has, from one TOML file that launcher and watcher read at their start.

Their nodes see TIDEGATE_LOCAL_ROOT, where jobs have their working directories, under the same path.

[hpc]                                  # the cluster's name: in records, subjects and `tidegate explain`
prefix = ["ssh", "login1"]             # runs Slurm's commands elsewhere
account = "general"

[hpc.accounts]                         # tenant = account
acme = "acme-gpu"

[hpc.coretypes.a100]                   # what `--coretype a100` asks of Slurm
partition = "gpu"
gres = "gpu:a100"                      # per GPU of the job; without it the coretype has none
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from shared.backends.local.names import is_name

LOCAL: Final = "local"
"""The name of this machine's own backend, which no cluster may have."""


_MESSAGES: Final = {"extra_forbidden": "there is no such setting", "missing": "this is needed"}


class WrongClusters(ValueError):
    """The file cannot be read, or says something that cannot be; the sentence names the place."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Coretype(_Table):
    """What jobs of one coretype ask of Slurm. `gres` is a name (and type) without a number: the job's GPUs are it."""

    partition: str | None = None
    constraint: str | None = None
    gres: str | None = None
    qos: str | None = None
    cpus: Annotated[int, Field(ge=1)] | None = None
    memory_mib: Annotated[int, Field(ge=1)] | None = None


class SlurmCluster(_Table):
    """One cluster. Jobs run as the account under which Slurm's commands are run: never as root, unless it is said.

    `settle_seconds`: so long after an unclear sbatch its job may still show up; only then is it submitted again.
    `stuck_seconds`: so long a job may wait for what cannot come before it is ended.
    `jobs_ahead`: so many jobs more than its cores take are handed over of each coretype, to wait in Slurm's queue: they
    age there, and a core that becomes free finds its next job. GPUs are never handed out ahead.
    """

    coretypes: Annotated[Mapping[str, Coretype], Field(min_length=1)]
    region: str | None = None
    prefix: tuple[str, ...] = ()
    slurm_conf: Path | None = None
    cluster: str | None = None
    user: str | None = None
    time_zone: str | None = None
    account: str | None = None
    accounts: Mapping[str, str] = {}
    may_requeue: bool = False
    accounting: bool = True
    allow_root: bool = False
    tick_seconds: Annotated[float, Field(ge=0.1, le=60)] = 2.0
    settle_seconds: Annotated[float, Field(ge=1, le=3600)] = 60.0
    stuck_seconds: Annotated[float, Field(ge=0)] = 300.0
    jobs_ahead: Annotated[int, Field(ge=0, le=100_000)] = 64
    submissions_at_once: Annotated[int, Field(ge=1, le=64)] = 8

    @field_validator("coretypes")
    @classmethod
    def _named(cls, coretypes: Mapping[str, Coretype]) -> Mapping[str, Coretype]:
        for name in coretypes:
            if not is_name(name) or "." in name:
                raise ValueError(f"{name!r} cannot be a coretype's name: use letters, digits, '-' and '_'")
        return coretypes

    @field_validator("time_zone")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                ZoneInfo(name)
            except (KeyError, ValueError, OSError) as error:
                raise ValueError(f"{name!r} is no IANA time zone, such as Europe/Berlin") from error
        return name

    def account_of(self, tenant: str) -> str | None:
        """The account that the tenant's jobs are charged to; None leaves it to Slurm."""
        return self.accounts.get(tenant, self.account)


def read(path: Path | None) -> Mapping[str, SlurmCluster]:
    """By name, in the order of the file; none where no file is named. Raises WrongClusters."""
    if path is None:
        return {}
    try:
        given = tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise WrongClusters(f"the clusters cannot be read from {path}: {error}") from error
    clusters = {}
    for name, table in given.items():
        if not is_name(name) or "." in name or name == LOCAL:
            raise WrongClusters(
                f"{path}: {name!r} cannot be a cluster's name: use letters, digits, '-' and '_', and not {LOCAL!r}"
            )
        try:
            clusters[name] = SlurmCluster.model_validate(table)
        except ValidationError as error:
            problems = "; ".join(
                f"{name}.{'.'.join(map(str, problem['loc']))}: {_MESSAGES.get(problem['type'], problem['msg'])}"
                for problem in error.errors(include_url=False)
            )
            raise WrongClusters(f"{path}: {problems}") from error
    return clusters
