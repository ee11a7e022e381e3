"""A nats-server of our own, on the loopback address, with JetStream that keeps what it acknowledged."""

import json
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

    def configure(self, authorization: str) -> None:
        """Write the configuration; `authorization` is the block that `infra.nats` draws from the subjects."""
        write_private(
            self.folder / "nats.conf",
            _CONFIGURATION.format(port=self.port, store=json.dumps(str(self.store)), authorization=authorization),
        )

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


_CONFIGURATION = """\
# Written at every start.
listen: 127.0.0.1:{port}
server_name: tidegate
jetstream {{
  store_dir: {store}
  # Without this an acknowledged message may vanish in a power cut: the default is a sync every two minutes.
  sync_interval: always
}}
{authorization}
"""
