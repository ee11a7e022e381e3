"""Reading output: the attempt's own regular files, and nothing that a link leads to."""

import base64
import os
from pathlib import Path

import pytest

from services.watcher.logs import MOST_BYTES, read
from shared.contracts.queries import LogsAsked

JOB = "j" + "0" * 26


def asked(**how: object) -> LogsAsked:
    """A question about attempt 1 of the job."""
    return LogsAsked.model_validate({"tenant": "acme", "job": JOB, "attempt": 1} | how)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The attempt's folder of logs."""
    folder = tmp_path / "work" / "acme" / JOB / "a1" / "logs"
    folder.mkdir(parents=True)
    return folder


def test_reads_from_the_offset_up_to_the_limit(tmp_path: Path, logs: Path) -> None:
    (logs / "stdout").write_bytes(b"0123456789")
    answer = read(tmp_path, asked(offset=3, limit_bytes=4))
    assert base64.b64decode(answer.data) == b"3456"
    assert (answer.found, answer.next_offset, answer.size_bytes) == (True, 7, 10)


def test_past_the_end_there_is_nothing_and_the_next_offset_is_the_end(tmp_path: Path, logs: Path) -> None:
    (logs / "stdout").write_bytes(b"abc")
    answer = read(tmp_path, asked(offset=99))
    assert (answer.data, answer.next_offset, answer.size_bytes) == ("", 3, 3)


def test_never_more_than_a_message_can_hold(tmp_path: Path, logs: Path) -> None:
    (logs / "stdout").write_bytes(b"x" * (MOST_BYTES + 10))
    answer = read(tmp_path, asked(limit_bytes=10**9))
    assert answer.next_offset == MOST_BYTES
    assert len(answer.model_dump_json()) < 1_000_000


def test_what_is_not_there_yet_is_not_found(tmp_path: Path) -> None:
    assert not read(tmp_path, asked()).found


@pytest.mark.parametrize(
    "wrong",
    [{"tenant": ".."}, {"tenant": "a/b"}, {"job": "../" + JOB}, {"attempt": 0}, {"offset": -1}, {"limit_bytes": -1}],
    ids=["tenant dots", "tenant with a slash", "job that climbs", "attempt 0", "negative offset", "negative limit"],
)
def test_refuses_what_is_no_name_or_number(tmp_path: Path, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no tenant|no job|count from 1"):
        read(tmp_path, asked(**wrong))


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path, logs: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (logs / "stdout").symlink_to(secret)
    assert not read(tmp_path, asked()).found


def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path: Path, logs: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "stdout").write_text("secret")
    logs.rmdir()
    logs.symlink_to(elsewhere)
    assert not read(tmp_path, asked()).found


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path: Path, logs: Path) -> None:
    os.mkfifo(logs / "stdout")
    assert not read(tmp_path, asked()).found
