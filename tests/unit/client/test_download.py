"""Fetching an output never writes outside the folder that was named, whatever the manifest or that folder holds."""

import hashlib
from pathlib import Path
from typing import Literal

import pytest

from shared.client.client import Tidegate
from shared.client.endpoint import Endpoint
from shared.client.errors import ClientError
from shared.contracts.queries import OutputFile


def fetched(root: Path, path: str, kind: Literal["file", "directory"] = "file") -> Path:
    """Fetch from a server that does not answer: what is refused is refused before it is asked."""
    file = OutputFile(path=path, size_bytes=0, sha256="", mode=0o644, kind=kind)
    with Tidegate(Endpoint("http://127.0.0.1:1", "none", None, "test")) as client:
        return client.download_output("j", file, root, lambda _: None)


@pytest.mark.parametrize("path", ["../evil", "/evil", "a/../../evil", "out/evil", "out/deep/evil", "loop/evil"])
def test_nothing_is_written_outside(tmp_path: Path, path: str) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    elsewhere.mkdir()
    (root / "out").symlink_to(elsewhere)
    (root / "loop").symlink_to("..")
    with pytest.raises(ClientError, match="outside"):
        fetched(root, path)
    assert list(elsewhere.iterdir()) == []


def test_a_folder_is_not_made_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClientError, match="outside"):
        fetched(tmp_path / "root", "out", "directory")
    assert not (tmp_path / "elsewhere").exists()


def test_a_root_that_is_a_link_is_the_users_choice(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to("real")
    fetched(tmp_path / "root", "a/b", "directory")
    assert (tmp_path / "real" / "a" / "b").is_dir()


@pytest.mark.parametrize("modified_ns", [10**18 + 7, None], ids=["known", "of an older server"])
def test_a_file_has_its_mode_and_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, modified_ns: int | None
) -> None:
    def arrives(_: Tidegate, job: str, file: OutputFile, part: Path, progress: object) -> None:
        part.write_bytes(b"1")

    monkeypatch.setattr(Tidegate, "_download", arrives)
    digest = hashlib.sha256(b"1").hexdigest()
    file = OutputFile(path="a/run", size_bytes=1, sha256=digest, mode=0o750, modified_ns=modified_ns)
    with Tidegate(Endpoint("http://127.0.0.1:1", "none", None, "test")) as client:
        status = client.download_output("j", file, tmp_path, lambda _: None).stat()
    assert status.st_mode & 0o777 == 0o750
    assert (status.st_mtime_ns == modified_ns) == (modified_ns is not None)
