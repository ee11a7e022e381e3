"""Copying back: verified, complete or said what is missing, never half (C3, C6, C7, C8)."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

from services.stager import copying
from services.stager.blobs import Blobs, Corrupt, StoreError
from services.stager.copying import Copying, Limits
from services.stager.domain import Stage
from services.stager.facts import Result
from services.stager.leases import Claim
from shared.contracts.queries import Manifest
from tests.unit.stager.archives import written

EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


class Outputs:
    """A working directory and a store."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path / "local"
        self.work = self.root / "work"
        self.work.mkdir(parents=True)
        self.store = tmp_path / "blobs"
        self.store.mkdir()
        self.blobs = Blobs(self.store.as_uri())
        self.limits = Limits(files=1000, bytes=1 << 30)

    def copy(
        self, *patterns: str, succeeded: bool = True, epoch: int = 1, last_try: bool = False,
        go_on: Callable[[], None] = lambda: None,
    ) -> Result:  # fmt: skip
        claim = self.claim(epoch, succeeded)
        return Copying(self.blobs, str(self.root), self.limits).run(claim, patterns, go_on, last_try=last_try)

    def claim(self, epoch: int = 1, succeeded: bool = True) -> Claim:
        return Claim(Stage.COPY_BACK, "j1", 1, "acme", "sha256:0", epoch, 1, "work", succeeded)

    def manifest(self, result: Result) -> Manifest:
        assert result.manifest is not None
        return Manifest.model_validate_json((self.store / result.manifest).read_bytes())

    def stored(self, result: Result) -> dict[str, bytes]:
        manifest = self.manifest(result)
        files = [entry for entry in manifest.files if entry.kind == "file"]
        return {entry.path: (self.store / manifest.prefix / entry.key).read_bytes() for entry in files}


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path)


def test_an_empty_file_is_there_an_empty_folder_recorded_and_only_the_absent_missing(
    outputs: Outputs,
) -> None:
    written(outputs.work, {"done.flag": ""})
    (outputs.work / "plots").mkdir(mode=0o750)
    result = outputs.copy("done.flag", "plots", "absent.bin")
    assert (result.outcome, result.missing, result.files) == ("missing", ("absent.bin",), 1)
    entries = {entry.path: entry for entry in outputs.manifest(result).files}
    assert (entries["done.flag"].size_bytes, entries["done.flag"].sha256) == (0, EMPTY)
    assert (entries["plots"].kind, entries["plots"].mode) == ("directory", 0o750)


def test_a_failed_job_brings_back_what_exists(outputs: Outputs) -> None:
    written(outputs.work, {"log.txt": "half"})
    result = outputs.copy("log.txt", "model/**", succeeded=False)
    assert (result.outcome, result.missing, result.files) == ("verified", (), 1)
    assert outputs.stored(result) == {"log.txt": b"half"}
    assert outputs.copy("nothing", succeeded=False).outcome == "verified"


def test_odd_names_come_back_byte_for_byte(outputs: Outputs) -> None:
    names = ["a b", "  two", "x(1).dat", "it's", '"q"', "$HOME", "-rf", "a;b", "a*b", "café", "tab\tx", "line\nbreak"]
    names += ["100%20", "100%", "a#1", "b#", "back\\slash", "x" * 255, "%09", "d/tab\tx/y", "\x7f", "…"]
    written(outputs.work, {name: name for name in names})
    result = outputs.copy("**")
    assert result.outcome == "verified", result.message
    assert outputs.stored(result) == {name: name.encode() for name in names}


def test_modes_are_kept_and_setuid_is_not(outputs: Outputs) -> None:
    for name, mode in (("run", 0o755), ("data", 0o600), ("su", 0o6711)):
        written(outputs.work, {name: ""})
        (outputs.work / name).chmod(mode)
    modes = {entry.path: entry.mode for entry in outputs.manifest(outputs.copy("*")).files}
    assert modes == {"run": 0o755, "data": 0o600, "su": 0o711}


def test_what_is_refused_is_listed_and_the_rest_comes_back(outputs: Outputs) -> None:
    written(outputs.work, {"model/a": "1"})
    (outputs.work / "model/out").symlink_to("/etc/passwd")
    os.mkfifo(outputs.work / "model/pipe")
    result = outputs.copy("model/**")
    assert result.outcome == "failed"
    assert "'model/out'" in str(result.message)
    assert "'model/pipe'" in str(result.message)
    assert outputs.stored(result) == {"model/a": b"1"}
    assert len(outputs.manifest(result).problems) == 2


class Unwilling(Blobs):
    """A store that refuses some names for a while."""

    def __init__(self, url: str, refuses: Callable[[str], bool]) -> None:
        super().__init__(url)
        self.refuses = refuses
        self.refused = 0

    def put(self, key, file, size, go_on):  # type: ignore[no-untyped-def] # as in Blobs
        if self.refuses(key):
            self.refused += 1
            raise StoreError(f"{key}: the store is away")
        return super().put(key, file, size, go_on)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_STORE_PAUSES_SECONDS", (0.0, 0.0))


def test_one_file_that_fails_for_good_is_no_success(outputs: Outputs) -> None:
    written(outputs.work, {f"f{n}": str(n) for n in range(4)})
    outputs.blobs = Unwilling(outputs.store.as_uri(), lambda key: key.endswith("/f1"))
    with pytest.raises(StoreError):
        outputs.copy("*")
    result = outputs.copy("*", last_try=True)
    assert result.outcome == "failed"
    assert "'f1'" in str(result.message)
    assert outputs.stored(result) == {"f0": b"0", "f2": b"2", "f3": b"3"}


def test_a_short_trouble_of_the_store_is_sat_out(outputs: Outputs) -> None:
    written(outputs.work, {"a": "1", "b": "2"})
    store = Unwilling(outputs.store.as_uri(), lambda key: store.refused < 2 and key.endswith("/a"))
    outputs.blobs = store
    assert outputs.copy("*").outcome == "verified"
    assert store.refused == 2


def test_a_store_that_is_away_is_said_in_the_end_and_soon(outputs: Outputs) -> None:
    written(outputs.work, {f"f{n}": "x" for n in range(50)})
    outputs.blobs = store = Unwilling(outputs.store.as_uri(), lambda key: True)
    result = outputs.copy("*", last_try=True)
    assert (result.outcome, result.manifest) == ("failed", None)
    assert "the store is away" in str(result.message)
    assert store.refused < 20, "not every file is tried"


def test_what_the_store_got_wrong_is_noticed(outputs: Outputs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check after the copy: a store that loses the end of a file is not believed."""
    written(outputs.work, {"a": "0123456789"})
    whole = obstore.put

    def truncating(store: LocalStore, path: str, file: object, **options: object) -> object:
        return whole(store, path, file[:-1] if isinstance(file, bytes) and path.endswith("/a") else file)  # type: ignore[arg-type]

    monkeypatch.setattr(obstore, "put", truncating)
    with pytest.raises(Corrupt, match="9 of 10 bytes"):
        outputs.copy("a")


def test_a_file_that_changes_once_is_copied_again_and_one_that_goes_on_changing_is_reported(outputs: Outputs) -> None:
    grown = written(outputs.work, {"log": "1"}) / "log"
    changes = iter([True])

    def once() -> None:
        if next(changes, False):
            grown.write_text("longer")

    # The first step is the walk's, the second comes while the file is read.
    steps: Iterator[Callable[[], None]] = iter([lambda: None, once])
    result = outputs.copy("log", go_on=lambda: next(steps, lambda: None)())
    assert (result.outcome, outputs.stored(result)) == ("verified", {"log": b"longer"})

    def always() -> None:
        with open(grown, "a") as file:
            file.write("x")

    result = outputs.copy("log", go_on=always)
    assert result.outcome == "failed"
    assert "changing" in str(result.message)


def test_large_files_come_back_in_parts(outputs: Outputs) -> None:
    content = os.urandom(1 << 20) * 11 + b"end"
    (outputs.work / "big").write_bytes(content)
    result = outputs.copy("big")
    assert result.size_bytes == len(content)
    assert outputs.stored(result)["big"] == content


def test_too_much_is_refused_with_the_limit(outputs: Outputs) -> None:
    written(outputs.work, {f"f{n}": "x" * 10 for n in range(5)})
    outputs.limits = Limits(files=3, bytes=1 << 20)
    assert "more than 3 files" in str(outputs.copy("*").message)
    with open(outputs.work / "sparse", "wb") as sparse:
        sparse.truncate(1 << 40)
    outputs.limits = Limits(files=10, bytes=1 << 20)
    assert "exceed 1048576 bytes" in str(outputs.copy("sparse").message)


def test_a_working_directory_that_is_gone_is_said(outputs: Outputs) -> None:
    outputs.work.rmdir()
    result = outputs.copy("*")
    assert result.outcome == "failed"
    assert "No such file" in str(result.message)


def test_leftovers_of_other_leases_are_cleared_and_nothing_else(outputs: Outputs) -> None:
    written(outputs.work, {"a": "1"})
    for epoch in (1, 2, 12):
        outputs.copy("a", epoch=epoch)
    written(
        outputs.store / "acme/outputs/j1",
        {
            "a12-e1/a": "another attempt's",
            "a1-e1/big#1": "left by a killed writer",
            "a1-e1.manifest.json#1": "and this",
        },
    )
    Copying(outputs.blobs, str(outputs.root), outputs.limits).forget_below(outputs.claim(2).trace)
    left = {
        str(path.relative_to(outputs.store / "acme/outputs/j1")) for path in outputs.store.rglob("*") if path.is_file()
    }
    assert left == {"a1-e2/a", "a1-e2.manifest.json", "a1-e12/a", "a1-e12.manifest.json", "a12-e1/a"}
    Copying(outputs.blobs, str(outputs.root), outputs.limits).forget(outputs.claim(2).trace)
    assert not (outputs.store / "acme/outputs/j1/a1-e2.manifest.json").exists()
    assert (outputs.store / "acme/outputs/j1/a1-e12/a").exists()


def test_a_file_whose_name_ends_like_a_drive_comes_back(outputs: Outputs) -> None:
    written(outputs.work, {"A|": "1", "c:": "2", "in/data:": "3", "in/y|/f": "4", "0|": "5"})
    result = outputs.copy("**")
    assert result.outcome == "verified"
    assert outputs.stored(result) == {"A|": b"1", "c:": b"2", "in/data:": b"3", "in/y|/f": b"4", "0|": b"5"}


def test_the_manifest_is_plain_json(outputs: Outputs) -> None:
    written(outputs.work, {"line\nbreak": "1"})
    result = outputs.copy("*")
    raw = json.loads((outputs.store / str(result.manifest)).read_bytes())
    assert (raw["version"], raw["job"], raw["attempt"], raw["prefix"]) == (1, "j1", 1, "acme/outputs/j1/a1-e1/")
    assert raw["files"][0]["path"] == "line\nbreak"
