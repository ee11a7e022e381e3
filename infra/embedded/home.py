"""Where things lie in a stack's home, and who may enter which folder."""

import json
import os
import secrets
import stat
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

_CHOOSE: Final = "Choose another folder with --home or TIDEGATE_HOME"


class HomeRefusedError(Exception):
    """A folder that cannot be a stack's home, or not this user's; the sentence says why and what to do."""


@dataclass(frozen=True)
class Home:
    """A stack's own folder: everything that it keeps, so that removing the folder removes the stack."""

    root: Path

    @classmethod
    def at(cls, given: Path) -> Self:
        """The home that a person named, by its whole path."""
        try:
            root = given.expanduser().absolute()
            str(root).encode()
        except (RuntimeError, UnicodeEncodeError, OSError) as error:
            raise HomeRefusedError(f"{str(given)!r} cannot be a stack's home: {error}. {_CHOOSE}.") from None
        if any(unicodedata.category(character) == "Cc" for character in str(root)):
            raise HomeRefusedError(
                f"{str(root)!r} cannot be a stack's home: its path holds a line break or another control character, "
                f"which configuration files cannot name. {_CHOOSE}."
            )
        return cls(root)

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """What the system refuses below this folder while the block runs is a `HomeRefusedError`."""
        try:
            yield
        except BrokenPipeError:  # who reads what is printed has gone: not the folder's fault
            raise
        except PermissionError as error:
            raise HomeRefusedError(
                f"you may not use {self.root} as a stack's home: {_told(error)}. "
                f"{_CHOOSE}, or be the user whose stack it is."
            ) from None
        except OSError as error:
            raise HomeRefusedError(f"{self.root} cannot hold a stack: {_told(error)}. {_CHOOSE}.") from None

    @property
    def endpoint(self) -> Path:
        return self.root / "endpoint.json"

    @property
    def postgres(self) -> Path:
        return self.root / "pg"

    @property
    def nats(self) -> Path:
        return self.root / "nats"

    @property
    def blobs(self) -> Path:
        return self.root / "blobs"

    @property
    def local(self) -> Path:
        """The local backend's root: records and working folders of jobs."""
        return self.root / "local"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def make(self) -> None:
        """Make the folders. Root's home may be passed through by others: the database's account, the tenants' jobs."""
        self.root.mkdir(parents=True, exist_ok=True)
        mode = self.root.stat().st_mode
        if mode & stat.S_ISVTX and mode & stat.S_IWOTH:
            raise HomeRefusedError(
                f"everybody may write to {self.root}: name a folder of its own below it with --home."
            )
        passage = 0o711 if os.geteuid() == 0 else 0o700
        for folder in (self.root, self.run, self.local):
            folder.mkdir(exist_ok=True)
            folder.chmod(passage)
        for folder in (self.secrets, self.logs, self.blobs, self.nats):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o700)

    @property
    def deployment(self) -> str:
        """Its name among those that share a Slurm cluster: made the first time, the same ever after."""
        path = self.root / "deployment"
        try:
            return path.read_text()
        except FileNotFoundError:
            write_private(path, f"tidegate-{secrets.token_hex(3)}")
            return path.read_text()

    def secret(self, name: str, prefix: str = "") -> str:
        """A random word of this home: made the first time, the same ever after."""
        path = self.secrets / name
        try:
            return path.read_text()
        except FileNotFoundError:
            write_private(path, prefix + secrets.token_urlsafe(32))
            return path.read_text()


def _told(error: OSError) -> str:
    return f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")


def write_private(path: Path, text: str) -> None:
    """Write a file for its owner only, whole or not at all, and on disk before it shows."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def write_json(path: Path, value: Any) -> None:
    """As `write_private`, for what programs read."""
    write_private(path, json.dumps(value, indent=2) + "\n")
