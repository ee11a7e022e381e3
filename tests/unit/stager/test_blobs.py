"""What is removed from the store is gone, however far a killed process had come with it."""

import io
from pathlib import Path

import pytest

from services.stager.blobs import Blobs


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    made = Blobs(tmp_path.as_uri())
    for name in ("outputs/a1/model/weights", "outputs/a1/log", "outputs/a1.manifest.json", "outputs/a2/log"):
        made.put(name, io.BytesIO(b"bytes"), 5, lambda: None)
    return made


def test_a_folder_or_an_object_is_removed_and_nothing_else(blobs: Blobs, tmp_path: Path) -> None:
    blobs.remove("outputs/a1")
    blobs.remove("outputs/a1.manifest.json")
    blobs.remove("outputs/never")
    assert blobs.folders("outputs") == ["outputs/a2"]
    assert not (tmp_path / "outputs/a1").exists()


def test_an_empty_folder_that_a_killed_removal_left_is_removed_by_the_next(blobs: Blobs, tmp_path: Path) -> None:
    for name in ("model/weights", "log"):
        (tmp_path / "outputs/a1" / name).unlink()
    blobs.remove("outputs/a1")
    assert not (tmp_path / "outputs/a1").exists()
