"""What the one-shot containers are told."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from shared.runtime.settings import Settings

Port = Annotated[int, Field(ge=1, le=65535)]


class StoreSettings(Settings):
    """Where secrets lie, and where the database answers."""

    secrets_folder: Path
    """A folder with one folder for each container, which sees its own only."""
    postgres_host: str = "postgres"
    postgres_port: Port = 5432


class SecretsSettings(StoreSettings):
    """The same, and what nats-server is to be told."""

    nats_host: str = "0.0.0.0"  # noqa: S104 - inside the containers' own network, of which no port of it is published
    """What it listens on."""
    nats_port: Port = 4222
    nats_store: Path = Path("/data")
    """Where it keeps streams."""
    tenant: str = "default"
    """Of the two tokens that exist from the start."""
    user: str = "admin"
