"""A backup as it lies on disk: a folder, or a tar file of one, with a manifest that says what it is."""

import json
import os
import shutil
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Self

from infra.embedded.home import write_json

FORMAT: Final = 1
DATA: Final = "pg"
MANIFEST: Final = "manifest.json"
HOLDS: Final = ("the whole database: jobs, pipelines, events, quotas, usage, and tokens by their hashes",)
LACKS: Final = (
    "blobs (snapshots and outputs)",
    "records and working folders of jobs on this machine",
    "messages of the broker, which is told everything that is open again",
    "secrets and ports of the home",
)


class BackupError(Exception):
    """It cannot be taken or put back; the sentence says why, and that nothing was changed."""


@dataclass(frozen=True)
class Manifest:
    """What a backup says of itself."""

    started_at: datetime
    """Everything that was committed before is in it; of what came during the copy, some may be."""
    ended_at: datetime
    tidegate: str
    postgres: str
    revisions: Mapping[str, str]
    """The newest migration of each service's schema."""
    size_bytes: int

    @property
    def major(self) -> int:
        return int(self.postgres.split(".")[0])

    @property
    def when(self) -> str:
        """Its time for people."""
        return f"{self.started_at:%Y-%m-%d %H:%M:%S} UTC"

    def write(self, folder: Path) -> None:
        times = {"started_at": self.started_at.isoformat(), "ended_at": self.ended_at.isoformat()}
        write_json(
            folder / MANIFEST, {"format": FORMAT} | asdict(self) | times | {"holds": HOLDS, "does_not_hold": LACKS}
        )

    @classmethod
    def parse(cls, text: str | bytes, of: Path) -> Self:
        """What a manifest's text says; `of` names the backup in sentences."""
        try:
            value: dict[str, Any] = json.loads(text)
            if value["format"] != FORMAT:
                raise BackupError(
                    f"{of} has format {value['format']}, and this version of Tidegate knows {FORMAT}: use the version "
                    f"that made it ({value.get('tidegate', 'not said')}), or a newer one"
                )
            return cls(
                started_at=datetime.fromisoformat(value["started_at"]),
                ended_at=datetime.fromisoformat(value["ended_at"]),
                tidegate=str(value["tidegate"]),
                postgres=str(value["postgres"]),
                revisions=dict(value["revisions"]),
                size_bytes=int(value["size_bytes"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BackupError(f"{of} is damaged: its {MANIFEST} cannot be understood ({error!r})") from None


def is_file(target: Path) -> bool:
    """Whether a backup of this name is one file rather than a folder."""
    return target.name.endswith((".tar", ".tar.gz", ".tgz"))


def pack(folder: Path, file: Path) -> None:
    """Make one file of a backup's folder, readable for its owner only, and on disk when this returns."""
    compressed = not file.name.endswith(".tar")
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
        if compressed:
            with tarfile.open(fileobj=target, mode="w:gz", compresslevel=1) as archive:
                _fill(archive, folder)
        else:
            with tarfile.open(fileobj=target, mode="w") as archive:
                _fill(archive, folder)
        target.flush()
        os.fsync(target.fileno())


def _fill(archive: tarfile.TarFile, folder: Path) -> None:
    for name in (MANIFEST, DATA):  # the manifest first, so that it is read at once
        archive.add(folder / name, name)


def read_manifest(source: Path) -> Manifest:
    """What the backup at `source` says of itself."""
    if source.is_dir():
        try:
            return Manifest.parse((source / MANIFEST).read_bytes(), source)
        except FileNotFoundError:
            raise BackupError(f"{source} is no backup of Tidegate: it has no {MANIFEST}") from None
    if not source.exists():
        raise BackupError(f"{source} does not exist: name the file or folder that `tidegate admin backup` made")
    try:
        with tarfile.open(source) as archive:
            first = archive.next()
            content = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
            if content is None:
                raise BackupError(f"{source} is no backup of Tidegate: it does not begin with a {MANIFEST}")
            return Manifest.parse(content.read(), source)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        said = str(error).partition(":\n")[0]  # a line for each way to open it follows
        raise BackupError(f"{source} is no backup of Tidegate, or is damaged: {said}") from None


def unpack(source: Path, data: Path) -> None:
    """Copy the database's folder of a backup to `data`, which is not there yet."""
    try:
        if source.is_dir():
            shutil.copytree(source / DATA, data, symlinks=True)
            return
        data.mkdir(0o700)
        with tarfile.open(source) as archive:
            for member in archive:
                _extract(archive, member, data)
    except (tarfile.TarError, EOFError, zlib.error, shutil.Error, FileNotFoundError) as error:
        raise BackupError(f"{source} is damaged: {error}") from None


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, data: Path) -> None:
    """One folder or file below `data`; other kinds, and names that lead elsewhere, are in no backup of ours."""
    top, *parts = PurePosixPath(member.name).parts
    if top != DATA or not parts:
        return
    if ".." in parts or not (member.isdir() or member.isfile()):
        raise BackupError(f"{member.name!r} is no part of a backup of Tidegate")
    path = data.joinpath(*parts)
    if member.isdir():
        path.mkdir(0o700)
        return
    content: IO[bytes] | None = archive.extractfile(member)
    assert content is not None, "a file has content"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        shutil.copyfileobj(content, target)
