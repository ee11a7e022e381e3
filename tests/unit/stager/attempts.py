"""One job, attempt by attempt, without anything around it."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from services.stager.blobs import Blobs, StoreError
from services.stager.copying import Copying
from services.stager.copying import Limits as OutputLimits
from services.stager.domain import Stage
from services.stager.earlier import Before, Copy
from services.stager.facts import Result
from services.stager.leases import Claim
from services.stager.listing import Limits
from services.stager.staging import Staging, Valid
from shared.client.snapshot import pack
from shared.contracts.ids import new_id
from shared.contracts.queries import Manifest
from shared.contracts.spec import JobSpec

SUBMITTED: Final = datetime(2024, 2, 29, 9, tzinfo=UTC)


class Store(Blobs):
    """A store that refuses what a test names."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.refuses: Callable[[str], bool] = lambda key: False

    def put(self, key: str, *rest: Any) -> tuple[int, str]:
        if self.refuses(key):
            raise StoreError("it is full")
        return super().put(key, *rest)


class Job:
    """One job, staged and copied back attempt by attempt. `here` is its working directory now."""

    def __init__(self, tmp_path: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr("services.stager.copying._STORE_PAUSES_SECONDS", ())
        self.root, store = tmp_path / "local", tmp_path / "blobs"
        (self.root / "work").mkdir(parents=True)
        (store / "acme/snapshots").mkdir(parents=True)
        self._folder = store
        self.store = Store(store.as_uri())
        self.spec = JobSpec(command=("true",), outputs=("**",))
        self.limits = OutputLimits(1000, 1 << 30)
        self.id = new_id("j", SUBMITTED)
        self.attempt = 0
        self._own: list[Copy] = []
        self.result = Result("none")
        self.warnings: tuple[str, ...] = ()

    def submitted(self, source: Path) -> None:
        with pack(source) as packed:
            (self._folder / "acme/snapshots" / f"{packed.digest[7:]}.tar.gz").write_bytes(packed.file.read())
        self.spec = self.spec.model_copy(update={"snapshot": packed.digest})

    def staged(self, steps: tuple[str, ...] = ()) -> Path:
        """The next attempt's working directory."""
        self.attempt += 1
        before = Before(steps, tuple(self._own[::-1]))
        staging = Staging(self.store, None, str(self.root), Limits())
        valid = staging.run(self._claim(Stage.STAGE_IN), self.spec, lambda: None, before)
        assert isinstance(valid, Valid)
        self._directory, self.warnings = valid.directory, valid.warnings
        return self.root / valid.directory

    def ended(self, *, succeeded: bool = False) -> Result:
        """Its command was paused (or has succeeded); what could be copied back is."""
        copying = Copying(self.store, str(self.root), self.limits)
        claim = self._claim(Stage.COPY_BACK, self._directory, succeeded)
        self.result = copying.run(claim, self.spec.outputs, lambda: None, last_try=True)
        if self.result.manifest is not None or self.result.outcome == "failed":
            self._own.append(Copy(self.attempt, self.result.manifest))
        self.store.refuses = lambda key: False
        return self.result

    def manifest(self) -> Manifest:
        assert self.result.manifest is not None
        return Manifest.model_validate_json((self._folder / self.result.manifest).read_bytes())

    def store_manifest(self, manifest: Manifest) -> None:
        """In the place of the last one."""
        (self._folder / str(self.result.manifest)).write_text(manifest.model_dump_json())

    def _claim(self, stage: Stage, directory: str | None = None, succeeded: bool | None = None) -> Claim:
        return Claim(stage, self.id, self.attempt, "acme", self.spec.digest(), 1, 1, directory, succeeded)


def tree(here: Path) -> dict[str, str | int]:
    """Files with their content, folders with nothing in them with their mode."""
    found: dict[str, str | int] = {}
    for folder, _, names in os.walk(here, followlinks=True):
        found |= {os.path.relpath(os.path.join(folder, name), here): Path(folder, name).read_text() for name in names}
    for path in here.rglob("*"):
        if path.is_dir() and not any(path.iterdir()):
            found[str(path.relative_to(here))] = path.stat().st_mode & 0o777
    return found
