"""docker-compose.yml as a test sees it: what each container is told, and the same as a plain process on loopback."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docker-compose.yml"
OURS = "tidegate"
"""The image that the Dockerfile makes."""


@cache
def compose() -> dict[str, Any]:
    """The file, with its merges done."""
    loaded: dict[str, Any] = YAML(typ="safe", pure=True).load(FILE)
    return loaded


@dataclass(frozen=True)
class Container:
    """One entry of `services`."""

    name: str
    what: Mapping[str, Any] = field(repr=False)

    @property
    def command(self) -> list[str]:
        return list(self.what["command"])

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.what.get("environment", {}))

    @property
    def is_ours(self) -> bool:
        return bool(self.what["image"] == OURS)

    @property
    def module(self) -> str | None:
        """What `python -m` runs."""
        command = self.command
        return command[2] if command[:2] == ["python", "-m"] else None

    @property
    def volumes(self) -> dict[str, str]:
        """Volumes by where they are seen."""
        parts = (entry.split(":") for entry in self.what.get("volumes", ()))
        return {part[1]: part[0] for part in parts}

    @property
    def needs(self) -> dict[str, str]:
        """What has to be so of which container before this one starts."""
        return {name: how["condition"] for name, how in self.what.get("depends_on", {}).items()}

    @property
    def check(self) -> list[str]:
        """The command of the health check."""
        return list(self.what["healthcheck"]["test"][1:])


def containers() -> list[Container]:
    """All of them."""
    return [Container(name, what) for name, what in compose()["services"].items()]


def in_order() -> list[Container]:
    """Each after those that it needs."""
    left = {container.name: container for container in containers()}
    ordered: list[Container] = []
    while left:
        ready = [one for one in left.values() if not left.keys() & one.needs.keys()]
        assert ready, f"{', '.join(left)} wait for each other"
        for one in ready:
            ordered.append(left.pop(one.name))
    return ordered


class OnLoopback:
    """Names, ports and volumes of containers as those of this machine."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        self.folder = folder
        self.ports = ports
        """Free ones, by what takes them."""

    def volume(self, name: str) -> Path:
        path = self.folder / "volumes" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def text(self, container: Container, text: str) -> str:
        """A path, an address or a line of code, as it is here."""
        for target, volume in sorted(container.volumes.items(), key=lambda item: -len(item[0])):
            if target in text:
                text = text.replace(target, str(self.volume(volume)))
                break
        text = text.replace("nats://nats:4222", f"nats://127.0.0.1:{self.ports['nats']}")
        return text.replace("127.0.0.1:9400", f"127.0.0.1:{self.ports.get(container.name, 0)}")

    def environ(self, container: Container) -> dict[str, str]:
        """What the process gets."""
        given = {name: self.text(container, value) for name, value in container.environment.items()}
        here = {
            "TIDEGATE_POSTGRES_HOST": "127.0.0.1",
            "TIDEGATE_POSTGRES_PORT": str(self.ports["postgres"]),
            "TIDEGATE_NATS_PORT": str(self.ports["nats"]),
            "TIDEGATE_NATS_STORE": str(self.volume("nats")),
            "TIDEGATE_HEALTH_PORT": str(self.ports.get(container.name, 0)),
            "TIDEGATE_HTTP_HOST": "127.0.0.1",
            "TIDEGATE_HTTP_PORT": str(self.ports["http"]),
        }
        given |= {name: value for name, value in here.items() if name in given}
        if "TIDEGATE_SECRETS_FOLDER" in given:
            given["TIDEGATE_SECRETS_FOLDER"] = str(self._together(container))
        return given | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}

    def words(self, container: Container, words: list[str]) -> list[str]:
        """A command, with this Python in place of the image's."""
        mapped = [self.text(container, word) for word in words]
        return [sys.executable if word == "python" else word for word in mapped]

    def start(self, container: Container) -> subprocess.Popen[bytes]:
        """The container's command as a process."""
        log = self.folder / f"{container.name}.log"
        with log.open("ab") as output:
            return subprocess.Popen(
                self.words(container, container.command),
                env=self.environ(container),
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )

    def is_healthy(self, container: Container) -> bool:
        """What the health check says."""
        check = self.words(container, container.check)
        done = subprocess.run(
            check, env=self.environ(container), capture_output=True, timeout=PATIENCE_SECONDS, check=False
        )
        return done.returncode == 0

    def _together(self, container: Container) -> Path:
        """The folder whose folders are the volumes that the container sees below one."""
        folder = self.folder / f"{container.name}.secrets"
        folder.mkdir(exist_ok=True)
        for target, volume in container.volumes.items():
            link = folder / target.rpartition("/")[2]
            if not link.exists():
                link.symlink_to(self.volume(volume))
        return folder
