"""What a person sends to start a workstation (`POST /v1/workstations`)."""

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from shared.contracts.given import Name
from shared.contracts.spec import MAX_ARGUMENTS, MAX_TIME_LIMIT_SECONDS, JobSpec, Project


class WorkstationRequest(BaseModel):
    """One workstation. Without a command it is JupyterLab, where that is installed.

    Its command listens on 127.0.0.1, port $TIDEGATE_PORT. It is suspended once it was idle for `idle_suspend_seconds`,
    and ends once it was up for `max_lifetime_seconds` in all; None: never. `keeps_prefix`: its command expects the
    whole path of a request, `/v1/workstations/$TIDEGATE_JOB_ID/proxy/…`; else only what follows that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=MAX_ARGUMENTS)
    name: Name | None = None
    project: Project = "default"
    env: dict[str, str] = Field(default_factory=dict)
    gpus: StrictInt = Field(default=0, ge=0, le=100_000)
    coretype: str = "local"
    region: str | None = None
    snapshot: str | None = None
    idle_suspend_seconds: StrictInt | None = Field(default=None, ge=1, le=MAX_TIME_LIMIT_SECONDS)
    max_lifetime_seconds: StrictInt | None = Field(default=None, ge=1, le=MAX_TIME_LIMIT_SECONDS)
    keeps_prefix: StrictBool = False

    def spec(self, command: tuple[str, ...]) -> JobSpec:
        """The job that it is. Its whole workspace comes back, and lies in the next attempt again; an empty one is
        whole, too."""
        return JobSpec(
            command=command,
            env=self.env,
            gpus=self.gpus,
            coretype=self.coretype,
            region=self.region,
            snapshot=self.snapshot,
            time_limit_seconds=self.max_lifetime_seconds,
            outputs=(".",),
        )
