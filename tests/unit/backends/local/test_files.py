"""Records are there whole or not at all, and created once."""

import os
from pathlib import Path

import pytest

from shared.backends.local.files import create_record, read_record, temporary_beside, write_record


def test_only_the_first_creates_a_record(tmp_path: Path) -> None:
    path = str(tmp_path / "claim")
    assert create_record(path, {"submission": "one"}, durable=True)
    assert not create_record(path, {"submission": "two"}, durable=True)
    assert read_record(path) == {"submission": "one"}
    assert os.listdir(tmp_path) == ["claim"], "no temporary file is left"


def test_whatever_is_there_already_is_not_created_over(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").touch()
    for name in ("link", "directory", "empty"):
        assert not create_record(str(tmp_path / name), {})
    assert not (tmp_path / "nowhere").exists()


def test_writing_replaces_the_whole_record(tmp_path: Path) -> None:
    path = str(tmp_path / "record")
    write_record(path, {"text": "x" * 10_000}, durable=True)
    write_record(path, {"text": "\udcff"})
    assert read_record(path) == {"text": "\udcff"}
    assert (os.stat(path).st_mode & 0o777) == 0o600


def test_a_write_that_fails_leaves_the_old_record_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "record")
    write_record(path, {"n": 1})

    def full(_fd: int, _content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            write_record(path, {"n": 2})
    assert read_record(path) == {"n": 1}
    assert os.listdir(tmp_path) == ["record"]


def test_a_record_that_may_not_be_looked_at_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        read_record(str(tmp_path / "record"))


def test_no_two_writers_of_a_record_share_a_temporary_file(tmp_path: Path) -> None:
    assert temporary_beside(f"{tmp_path}/r.json") != temporary_beside(f"{tmp_path}/r.json")
