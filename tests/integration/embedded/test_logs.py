"""Logs of a stack stay within bounds and can be read from their end."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.embedded import commands
from infra.embedded.home import Home
from infra.embedded.logs import follow, last_lines, rotate
from infra.embedded.processes import open_log
from tests.servers import wait_until


def test_a_full_log_is_put_aside_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    with open_log(log) as writer:
        writer.write(b"old\n" * 100)
        rotate(log, largest_bytes=100)
        writer.write(b"new\n")
    assert log.read_text() == "new\n"
    assert (tmp_path / "api.log.1").read_text() == "old\n" * 100
    assert os.stat(tmp_path / "api.log.1").st_mode & 0o777 == 0o600


def test_a_log_within_bounds_stays_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("line\n")
    rotate(log, largest_bytes=100)
    assert log.read_text() == "line\n"
    assert not (tmp_path / "api.log.1").exists()


def test_the_last_lines_reach_back_into_the_file_before(tmp_path: Path) -> None:
    (tmp_path / "api.log.1").write_text("one\ntwo\n")
    (tmp_path / "api.log").write_text("three\n")
    assert last_lines(tmp_path / "api.log", 2) == ["two", "three"]


def test_following_goes_on_over_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "api.log"
    log.write_text("before\n" * 10)
    seen: list[str] = []
    lines: Iterator[str] = follow(log)
    threading.Thread(target=lambda: seen.extend(next(lines) for _ in range(2)), daemon=True).start()

    def saying(word: str) -> list[str]:
        with log.open("a") as file:
            file.write(f"{word}\n")
        return seen

    # The follower starts at the end of the file: write until it is there.
    wait_until(lambda: saying("first"), "the first line")
    rotate(log, largest_bytes=1)
    wait_until(lambda: len(saying("second")) == 2, "a line after the rotation")
    assert seen[0] == "first"


def test_asking_for_a_log_that_is_not_there_names_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.log("api").write_text("hello\n")
    assert commands.logs(home.root, "apis") == 3
    assert "there are api" in capsys.readouterr().err
    assert commands.logs(home.root, "api") == 0
    assert capsys.readouterr().out == "hello\n"
