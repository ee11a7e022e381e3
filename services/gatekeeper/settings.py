"""What the gatekeeper is told at its start."""

from typing import Annotated

from pydantic import Field

from shared.runtime.settings import ServiceSettings


class GatekeeperSettings(ServiceSettings):
    """Limits of tenants without a quota of their own, and how long to believe a silent cluster."""

    default_slots: Annotated[int | None, Field(ge=0)] = None
    """Jobs at a time of a tenant without a quota; unset: no limit of its own."""
    default_gpus: Annotated[int | None, Field(ge=0)] = None
    """GPUs of a tenant without a quota; unset: no limit of its own."""
    cluster_silent_seconds: Annotated[float, Field(gt=0)] = 30.0
    """A cluster whose last report is older is unknown: its capacity gate is closed."""
    keep_after_seconds: Annotated[float, Field(ge=0)] = 300.0
    """From this age on a job that capacity holds is passed by no smaller one: free GPUs are kept for it."""
