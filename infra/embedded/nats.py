"""A nats-server of our own, on the loopback address, with JetStream that keeps what it acknowledged."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.embedded.home import write_private
from infra.embedded.processes import Process


@dataclass(frozen=True)
class Nats:
    """One server: its program, the folder of its configuration and streams, its port."""

    program: Path
    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def configure(self, passwords: Mapping[str, str]) -> None:
        """Write the configuration, with the permissions of every service, as of this version of the code."""
        from infra.nats.config import render  # 40 MB and most of a second, of which the supervisor is spared

        write_private(self.folder / "nats.conf", render(passwords=passwords, store_dir=str(self.store), port=self.port))

    def process(self, log: Path) -> Process:
        """How the server runs."""
        return Process(
            name="nats",
            command=(str(self.program), "--config", str(self.folder / "nats.conf")),
            cwd=self.folder,
            log=log,
            ready=self.url,
            stop_seconds=15,
        )
