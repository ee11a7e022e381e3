"""What `api` is told by its environment, besides what every service is told."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from shared.contracts.given import Name
from shared.contracts.subjects import is_tenant_name
from shared.lifecycle.facts import Frozen
from shared.runtime.settings import ServiceSettings

_MIN_TOKEN_LENGTH = 16


class BootstrapToken(Frozen):
    """A token that exists from the start: how the first person gets in."""

    token: SecretStr
    tenant: str
    user: Name
    role: Literal["user", "admin"] = "user"

    @field_validator("token")
    @classmethod
    def _token_is_long(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < _MIN_TOKEN_LENGTH:
            raise ValueError(
                f"a token has at least {_MIN_TOKEN_LENGTH} characters: make one with `openssl rand -hex 32`"
            )
        return value

    @field_validator("tenant")
    @classmethod
    def _tenant_is_a_name(cls, value: str) -> str:
        if not is_tenant_name(value):
            raise ValueError(f"{value!r} is no tenant's name: use 1 to 40 of a-z, 0-9 and inner dashes")
        return value


class ApiSettings(ServiceSettings):
    """`TIDEGATE_HTTP_HOST` and so on; see the README for each."""

    http_host: str = "127.0.0.1"
    http_port: Annotated[int, Field(ge=0, le=65535)] = 8420
    http_fd: Annotated[int, Field(ge=3)] | None = None
    """A bound socket that was handed down, to listen on in place of host and port: several processes share it, and
    no connection is refused while one of them is started again."""
    blob_url: str
    single_tenant: bool = False
    """The stack does not run as root, so that jobs of two tenants would run as one user: a second tenant is refused."""
    bootstrap_tokens: tuple[BootstrapToken, ...] = ()
    retry_budget: Annotated[int, Field(ge=0, le=100)] = 0
    """Automatic retries that a new job has for failures of its own, where it does not say."""
    infrastructure_retry_budget: Annotated[int, Field(ge=0, le=100)] = 3
    """Automatic retries and requeues that it has for failures of the infrastructure."""
    retries_by_hand: Annotated[int, Field(ge=0, le=1000)] = 20
    """How often it may be retried by hand."""
    retries_max: Annotated[int, Field(ge=0, le=100)] = 10
    """The most automatic retries that a submit may ask for."""
    job_path: str | None = None
    """PATH of a job that sets none, to look for JupyterLab on; by default what the local backend gives its jobs."""
    workstations: bool = True
    """This server can reach the ports of jobs, which are those of the machine that they run on; where it cannot,
    workstations are refused at their start."""
    max_snapshot_bytes: Annotated[int, Field(ge=1)] = 2 * 1024**3
    max_batch_bytes: Annotated[int, Field(ge=1)] = 16 * 1024**2

    @field_validator("bootstrap_tokens")
    @classmethod
    def _one_tenant_where_only_one_is_allowed(
        cls, value: tuple[BootstrapToken, ...], others: ValidationInfo
    ) -> tuple[BootstrapToken, ...]:
        tenants = sorted({token.tenant for token in value})
        if others.data.get("single_tenant") and len(tenants) > 1:
            raise ValueError(
                f"they name the tenants {', '.join(tenants)}, and TIDEGATE_SINGLE_TENANT allows one: "
                "keep the tokens of one tenant, or run the stack as root"
            )
        return value

    def secrets(self) -> list[str]:
        """The values that no log line may hold: the bootstrap tokens too."""
        return [*super().secrets(), *(token.token.get_secret_value() for token in self.bootstrap_tokens)]
