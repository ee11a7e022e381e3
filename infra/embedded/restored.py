"""What a restore leaves for the next start of the stack to finish: `restored.json` in the home."""

import json
import shutil
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from infra.embedded.home import Home, write_json


@dataclass(frozen=True)
class Restored:
    """A backup that took, or is about to take, the place of the database; until the next start has gone well."""

    backup_time: str
    data: str
    """The folder in the home that becomes the database's; gone once it has."""
    aside: tuple[str, ...]
    """Folders in the home that hold what was there before, oldest first."""

    @classmethod
    def read(cls, home: Home) -> Self | None:
        """None where nothing was restored since the last start that went well."""
        try:
            value = json.loads(_path(home).read_text())
        except FileNotFoundError:
            return None
        return cls(value["backup_time"], value["data"], tuple(value["aside"]))

    def write(self, home: Home) -> None:
        write_json(_path(home), asdict(self))

    @property
    def remark(self) -> str:
        """What a person should know of the start that follows."""
        when = datetime.fromisoformat(self.backup_time)
        return (
            f"its database is the backup of {when:%Y-%m-%d %H:%M:%S} UTC: nothing is launched before what runs is seen"
        )


def put_in_place(home: Home) -> None:
    """Let restored data be the database's, and keep what was there. Safe to repeat, also after a crash between two
    steps; nothing may run on the data."""
    restored = Restored.read(home)
    if restored is None or not (data := home.root / restored.data).exists():
        return
    if home.postgres.exists():
        home.postgres.rename(home.root / restored.aside[-1])
    data.rename(home.postgres)


def forget(home: Home) -> None:
    """The start has gone well: what was there before the restore goes."""
    restored = Restored.read(home)
    if restored is None:
        return
    _path(home).unlink()
    for name in restored.aside:
        shutil.rmtree(home.root / name, ignore_errors=True)


def _path(home: Home) -> Path:
    return home.root / "restored.json"
