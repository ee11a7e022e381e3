"""A manifest written line by line, so that a million files need no memory: `shared.contracts.queries.Manifest`."""

import shutil
from collections.abc import Sequence
from typing import IO

import orjson

from shared.contracts.queries import OutputFile, OutputFolder, OutputLink


class ManifestFile:
    """Writes to a file that is empty; another one keeps what of it comes last."""

    def __init__(self, file: IO[bytes], folders: IO[bytes], job: str, attempt: int, prefix: str) -> None:
        self._file = file
        self._folders = folders
        self._separator = b""
        head = orjson.dumps({"version": 1, "job": job, "attempt": attempt, "prefix": prefix})
        file.write(head[:-1] + b',"files":[')

    def add(self, entry: OutputFile) -> None:
        """One more file or folder."""
        self._file.write(self._separator + b"\n" + entry.model_dump_json().encode())
        self._separator = b","

    def add_folder(self, folder: OutputFolder) -> None:
        """One more folder in which something lies."""
        self._folders.write((b"," if self._folders.tell() else b"") + b"\n" + folder.model_dump_json().encode())

    def finish(self, problems: Sequence[str], lost: Sequence[str], links: Sequence[OutputLink]) -> int:
        """End it; its size in bytes."""
        kept = [link.model_dump() for link in links]
        said = orjson.dumps({"problems": list(problems), "lost": list(lost), "links": kept})
        self._file.write(b'\n],"folders":[')
        self._folders.seek(0)
        shutil.copyfileobj(self._folders, self._file)
        self._file.write(b"\n]," + said[1:])
        return self._file.tell()


def as_text(path: str) -> str:
    """A path as a manifest can name it where it is not UTF-8: such bytes become `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
