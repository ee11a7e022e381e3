"""Packing a directory: what is in it, what stays out, what is refused by name, and that it is the same every time."""

import errno
import gzip
import hashlib
import os
import re
import socket
import subprocess
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.client.snapshot import SnapshotError, pack


def a_tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def members(root: Path, *extra: str) -> dict[str, tarfile.TarInfo]:
    with pack(root, extra) as packed, tarfile.open(fileobj=packed.file) as archive:
        return {member.name: member for member in archive}


def names(root: Path, *extra: str) -> list[str]:
    return list(members(root, *extra))


def test_the_same_tree_gives_the_same_digest_whenever_and_wherever_it_is_packed(tmp_path: Path) -> None:
    files = {"b/x": "1", "a": "2", "b.txt": "3"}
    first, second = a_tree(tmp_path / "first", files), a_tree(tmp_path / "second", dict(reversed(files.items())))
    os.utime(second / "a", (1, 1))
    with pack(first) as one, pack(second) as other:
        assert one.digest == other.digest
        content = one.file.read()
        assert one.digest == "sha256:" + hashlib.sha256(content).hexdigest()
        assert (one.size_bytes, one.files, one.unpacked_bytes) == (len(content), 3, 3)
    assert content[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00" + content[8:10], "no name and no time in the header"
    assert all((m.mtime, m.uid, m.gid, m.uname, m.gname) == (0, 0, 0, "", "") for m in members(first).values())


def test_another_content_name_or_mode_gives_another_digest(tmp_path: Path) -> None:
    root = a_tree(tmp_path, {"a": "1"})
    digests = {pack(root).digest}
    (root / "a").chmod(0o755)
    digests.add(pack(root).digest)
    (root / "a").write_text("2")
    digests.add(pack(root).digest)
    (root / "a").rename(root / "b")
    digests.add(pack(root).digest)
    assert len(digests) == 4


def test_entries_are_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    root = a_tree(tmp_path, {"b": "", "a/z": "", "a/B": "", "é": "", "Z": ""})
    assert names(root) == ["Z", "a", "a/B", "a/z", "b", "é"]


def test_git_and_what_is_ignored_stay_out_nested_rules_too(tmp_path: Path) -> None:
    root = a_tree(
        tmp_path,
        {
            ".git/config": "",
            ".gitignore": "*.ckpt\n/build/\n__pycache__/\n",
            ".tidegateignore": "notes.md\n!keep.ckpt\n",
            "big.ckpt": "",
            "keep.ckpt": "",
            "notes.md": "",
            "build/x": "",
            "src/build/x": "",
            "src/__pycache__/x.pyc": "",
            "src/.gitignore": "!best.ckpt\nlocal.py\n",
            "src/best.ckpt": "",
            "src/local.py": "",
            "local.py": "",
        },
    )
    found = {name for name, member in members(root).items() if member.isreg()}
    assert found == {
        ".gitignore", ".tidegateignore", "keep.ckpt", "local.py", "src/.gitignore", "src/best.ckpt", "src/build/x",
    }  # fmt: skip


def test_agrees_with_git_about_what_is_ignored(tmp_path: Path) -> None:
    files = {
        ".gitignore": "*.log\n!important.log\n/only-top\ndocs/**/*.tmp\nfoo/*\n!foo/keep\nwith\\ space\n#no\n\\#yes\n",
        "sub/.gitignore": "/here\n!trace.log\n",
        **dict.fromkeys(
            ["a.log", "important.log", "only-top", "sub/only-top", "docs/a/b/c.tmp", "docs/c.tmp", "foo/x", "foo/keep"],
            "1",
        ),
        **dict.fromkeys(["with space", "#no", "#yes", "sub/here", "sub/x/here", "sub/trace.log", "sub/b.log"], "1"),
    }
    root = a_tree(tmp_path, files)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    found = {name for name, member in members(root).items() if member.isreg()}
    assert found == set(listed.stdout.rstrip("\0").split("\0"))


def test_the_repositorys_rules_hold_in_a_directory_below_it(tmp_path: Path) -> None:
    a_tree(tmp_path, {".git/HEAD": "", ".gitignore": "*.ckpt\nout/\n", "job/a.ckpt": "", "job/b": "", "out/c": ""})
    assert names(tmp_path / "job") == ["b"]
    assert names(tmp_path / "out") == ["c"], "a directory that is ignored itself is packed when it is submitted"


def test_declared_inputs_are_packed_even_where_they_are_ignored(tmp_path: Path) -> None:
    root = a_tree(
        tmp_path,
        {".gitignore": "data/\n*.csv\n", "data/in.csv": "1", "data/other": "2", "data/set/a.csv": "3", "x.csv": ""},
    )
    assert names(root, "data/in.csv", "./data/set/", "absent", ".") == [
        ".gitignore", "data", "data/in.csv", "data/set", "data/set/a.csv",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["/etc/hostname", "../x", "a/../../x"])
def test_a_declared_input_outside_is_refused_by_name(tmp_path: Path, path: str) -> None:
    with pytest.raises(SnapshotError, match="submitted directory"):
        pack(tmp_path, [path])


def test_links_that_stay_inside_are_kept_as_links(tmp_path: Path) -> None:
    root = a_tree(tmp_path, {"data/a": "1"})
    (root / "data/up").symlink_to("../data/a")
    (root / "latest").symlink_to("data")
    (root / "dangling").symlink_to("not-there-yet")
    found = members(root)
    assert {name: m.linkname for name, m in found.items() if m.issym()} == {
        "data/up": "../data/a", "latest": "data", "dangling": "not-there-yet",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/etc/passwd", "absolute path"),
        ("../outside", "above the submitted directory"),
        ("deep/back/../../x", "above the submitted directory"),
        ("loop", "circle"),
    ],
    ids=["an absolute target", "upwards", "upwards through another link", "itself"],
)
def test_a_link_that_leads_out_is_refused_by_name(tmp_path: Path, target: str, why: str) -> None:
    root = a_tree(tmp_path / "root", {"deep/one/two/f": ""})
    (root / "deep/back").symlink_to("../deep")
    (root / "loop").symlink_to(target)
    with pytest.raises(SnapshotError, match=why) as refused:
        pack(root)
    assert "'loop'" in str(refused.value)


def test_pipes_and_sockets_are_refused_by_name_and_never_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "pi\npe")
    with pytest.raises(SnapshotError, match=r"'pi\\npe' is a named pipe"):
        pack(tmp_path)
    (tmp_path / "pi\npe").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
        listening.bind("s")
        with pytest.raises(SnapshotError, match="'s' is a socket"):
            pack(tmp_path)
    (tmp_path / ".tidegateignore").write_text("s\n")
    assert names(tmp_path) == [".tidegateignore"]


def test_execute_bits_survive_and_setuid_does_not(tmp_path: Path) -> None:
    root = a_tree(tmp_path, {"run.sh": "", "data": "", "su": ""})
    (root / "run.sh").chmod(0o755)
    (root / "data").chmod(0o600)
    (root / "su").chmod(0o6755)
    assert {name: m.mode for name, m in members(root).items()} == {"run.sh": 0o755, "data": 0o600, "su": 0o755}


ODD_NAMES = [
    b"a b", b"  two", b"x(1).dat", b"it's", b'"q"', b"$HOME", b"-rf", b"a;b", b"a*b", "café".encode(), b"tab\tx",
    b"line\nbreak", b"100%20", b"latin-\xe9", b"x" * 255,
]  # fmt: skip


def test_names_are_kept_byte_for_byte(tmp_path: Path) -> None:
    for name in ODD_NAMES:
        (tmp_path / os.fsdecode(name)).write_bytes(name)
    with pack(tmp_path) as packed, tarfile.open(fileobj=packed.file, errors="surrogateescape") as archive:
        found = {os.fsencode(m.name): (archive.extractfile(m) or pytest.fail(m.name)).read() for m in archive}
    assert found == {name: name for name in ODD_NAMES}


def test_a_file_that_shrinks_while_it_is_packed_is_named(tmp_path: Path) -> None:
    grown = tmp_path / "train.log"
    grown.write_bytes(bytes(3 << 20))
    with pytest.raises(SnapshotError, match=r"'train\.log' changed while it was packed"):
        pack(tmp_path, progress=lambda _files, _bytes: grown.write_bytes(b""))


def test_progress_counts_files_and_bytes(tmp_path: Path) -> None:
    root = a_tree(tmp_path, {"a": "12", "b": "345"})
    seen: list[tuple[int, int]] = []
    pack(root, progress=lambda files, size: seen.append((files, size)))
    assert seen == sorted(seen)
    assert seen[-1] == (2, 5)


def test_an_empty_directory_is_a_snapshot_of_nothing(tmp_path: Path) -> None:
    with pack(tmp_path) as packed:
        assert gzip.decompress(packed.file.read()) == bytes(1024)


def test_something_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    with pytest.raises(SnapshotError, match="is not a directory"):
        pack(tmp_path / "f")


PART = st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda part: part not in (".", "..", ".git", ".gitignore", ".tidegateignore")
)


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.lists(PART, min_size=1, max_size=3).map(tuple), st.binary(max_size=2000), max_size=8))
def test_whatever_the_tree_python_reads_the_same_tree_back(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[tuple[str, ...], bytes]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    written: dict[str, bytes] = {}
    for parts, content in tree.items():
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue  # one name of the example is a file and a folder
        written["/".join(parts)] = content
    with pack(root) as packed, tarfile.open(fileobj=packed.file) as archive:
        found = {m.name: (archive.extractfile(m) or pytest.fail(m.name)).read() for m in archive if m.isreg()}
    assert found == written


@pytest.mark.parametrize("line", ["!", "\\", "name\\"])
def test_a_line_that_means_nothing_is_passed_over_as_git_does(tmp_path: Path, line: str) -> None:
    a_tree(tmp_path, {".gitignore": f"*.log\n{line}\n*.tmp\n", "a.log": "", "b.tmp": "", "c": ""})
    assert names(tmp_path) == [".gitignore", "c"]


@pytest.mark.parametrize("name", ["secret", ".gitignore", "folder/.tidegateignore", "../.gitignore"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = a_tree(tmp_path / "job", {name: "x"})
    (tmp_path / ".git").mkdir()

    def refused(path: str, *rest: int) -> int:
        if path == os.path.normpath(f"{folder}/{name}"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return opened(path, *rest)

    # Root may read everything, so the kernel's answer is given in its place.
    opened = os.open
    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr("builtins.open", partial(open, opener=refused))
    with pytest.raises(SnapshotError, match=re.escape(f"'{name}' cannot be read: Permission denied")):
        pack(folder)
