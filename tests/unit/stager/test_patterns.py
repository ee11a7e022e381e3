"""The grammar of output patterns, as the stager's README has it."""

import os
from pathlib import Path

import pytest

from services.stager.patterns import Patterns
from services.stager.walk import Found, Walk
from tests.unit.stager.archives import written

TREE = {
    "a.json": "", "b.txt": "", ".hidden": "", "model/w.bin": "", "model/sub/deep/x.json": "", "logs/1.log": "",
    "logs/old/2.log": "", "[x].dat": "", "a*b": "", "model.json/inner": "",
}  # fmt: skip

NAMES = {
    "*.json": {"a.json", "model.json/inner"},
    "model/**": {"model/w.bin", "model/sub/deep/x.json"},
    "model": {"model/w.bin", "model/sub/deep/x.json"},
    "./model/": {"model/w.bin", "model/sub/deep/x.json"},
    "a.json/": set[str](),
    "**/*.json": {"a.json", "model/sub/deep/x.json", "model.json/inner"},
    "model/**/x.json": {"model/sub/deep/x.json"},
    "model/**/w.bin": {"model/w.bin"},
    "model/*": {"model/w.bin", "model/sub/deep/x.json"},
    "*/*.log": {"logs/1.log"},
    "**/*.log": {"logs/1.log", "logs/old/2.log"},
    "?.json": {"a.json"},
    "[ab].*": {"a.json", "b.txt"},
    "[!a].*": {"b.txt"},
    "[x].dat": {"[x].dat"},
    "a*b": {"a*b"},
    "**": set(TREE),
    ".": set(TREE),
    ".*": {".hidden"},
    "nothing": set[str](),
    "b.txt/**": set[str](),
}


@pytest.mark.parametrize(("pattern", "wanted"), NAMES.items(), ids=NAMES.keys())
def test_names(pattern: str, wanted: set[str], tmp_path: Path) -> None:
    walk = Walk(str(written(tmp_path, TREE)), Patterns([pattern]))
    found = {item.path for item in walk if isinstance(item, Found)}
    assert found == wanted
    assert walk.unmatched == (() if wanted else (pattern,))
    walk.close()


def test_an_empty_folder_is_there_when_it_is_named_and_not_when_its_content_is(tmp_path: Path) -> None:
    (tmp_path / "plots").mkdir()
    for pattern, there in (("plots", True), ("plots/", True), ("p*", True), ("plots/**", False), ("plots/*", False)):
        walk = Walk(str(tmp_path), Patterns([pattern]))
        assert [item.path for item in walk] == (["plots"] if there else [])
        assert walk.unmatched == (() if there else (pattern,))
        walk.close()


def test_a_file_that_several_patterns_name_comes_once(tmp_path: Path) -> None:
    walk = Walk(str(written(tmp_path, TREE)), Patterns(["**", "a.json", "*.json"]))
    names = [item.path for item in walk if isinstance(item, Found)]
    assert len(names) == len(set(names)) == len(TREE)
    walk.close()


def test_folders_that_cannot_hold_a_match_are_not_opened(tmp_path: Path) -> None:
    written(tmp_path, {"model/a": "", "data/x": ""})
    opened: list[str] = []

    class Watched(Walk):
        def _open_folder(self, path: str) -> int:
            opened.append(path)
            return super()._open_folder(path)

    walk = Watched(str(tmp_path), Patterns(["model/**"]))
    list(walk)
    walk.close()
    assert "data" not in opened
    assert os.path.isdir(tmp_path / "data")
