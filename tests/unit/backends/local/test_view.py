"""Which paths a view has to bring along."""

from pathlib import Path

from shared.backends.local.view import closed_ancestor, trace


def test_every_link_on_the_way_is_found(tmp_path: Path) -> None:
    real = tmp_path / "python-3.11.7"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "python3.11").touch()
    (real / "bin" / "python3").symlink_to("python3.11")
    (tmp_path / "python-3.11").symlink_to("python-3.11.7")
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "python").symlink_to(tmp_path / "python-3.11" / "bin" / "python3")
    links: dict[str, str] = {}
    base = trace(str(tmp_path), {})
    assert trace(str(tmp_path / "venv" / "python"), links) == f"{base}/python-3.11.7/bin/python3.11"
    assert links == {
        f"{base}/venv/python": f"{tmp_path}/python-3.11/bin/python3",
        f"{base}/python-3.11": "python-3.11.7",
        f"{base}/python-3.11.7/bin/python3": "python3.11",
    }


def test_a_link_upwards_is_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("../a/b")
    base = trace(str(tmp_path), {})
    assert trace(f"{tmp_path}/a/up", {}) == f"{base}/a/b"


def test_the_outermost_closed_directory_is_named(tmp_path: Path) -> None:
    deep = tmp_path / "outer" / "inner" / "home"
    deep.mkdir(parents=True)
    for open_directory in (tmp_path, *list(tmp_path.parents)[:-2], deep.parent, deep.parent.parent):
        if open_directory.is_relative_to(tmp_path):
            open_directory.chmod(0o755)
    (tmp_path / "outer").chmod(0o700)
    (tmp_path / "outer" / "inner").chmod(0o700)
    found = closed_ancestor(str(deep))
    assert found is not None
    assert Path(found) == tmp_path / "outer" or tmp_path.is_relative_to(found)


def test_a_closed_directory_itself_is_not_its_own_ancestor() -> None:
    assert closed_ancestor("/etc") is None
