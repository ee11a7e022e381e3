"""Names of submissions and of directories: deterministic, read back, and nothing a path reads otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.backends.local import layout
from shared.backends.local.names import is_name, parse_submission_name, submission_name

PARTS = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=30)


@given(PARTS, PARTS, st.integers(1, 10**6), PARTS)
def test_a_submissions_name_is_deterministic_and_read_back(deployment: str, job: str, attempt: int, token: str) -> None:
    name = submission_name(deployment, job, attempt, token)
    assert name == submission_name(deployment, job, attempt, token)
    assert parse_submission_name(name) == (deployment, job, attempt, token)
    for kind in layout.RECORD_KINDS:
        assert layout.split_record_name(f"{name}.{kind}.json") == (name, kind)


@given(st.text(max_size=40))
def test_what_is_read_back_is_what_was_made(text: str) -> None:
    parsed = parse_submission_name(text)
    assert parsed is None or submission_name(*parsed) == text


@pytest.mark.parametrize(
    "name",
    ["", "d.j.a1", "d.j.a0.t", "d.j.a01.t", "d.j.a-1.t", "d.j.b1.t", "d.J.a1.t", "d.j.a1.t.x", "d..a1.t", "d.j.a٣.t"],
)
def test_foreign_names_are_not_read(name: str) -> None:
    assert parse_submission_name(name) is None


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        (("D", "j", 1, "t"), "deployment 'D' cannot be part"),
        (("d", "../j", 1, "t"), "job '../j' cannot be part"),
        (("d", "j", 0, "t"), "the first attempt is 1"),
        (("d", "j", 1, ""), "token '' cannot be part"),
        (("d", "j" * 200, 1, "t"), "is longer than"),
    ],
)
def test_says_what_is_wrong_with_a_part(parts: tuple[str, str, int, str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        submission_name(*parts)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "-rf", "a/b", "a\0b", "a b", "é", "x" * 129])
def test_what_cannot_be_one_component_of_a_path_is_no_name(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(ValueError, match="cannot be a directory's name"):
        layout.attempt_directory("/r", name, "j1", 1)


@pytest.mark.parametrize(
    "name", [".d.j.a1.t.exit.json.7.tmp", "d.j.a1.t.exit", "exit.json", ".exit.json", "d.j.a1.t.other.json"]
)
def test_other_files_are_no_records(name: str) -> None:
    assert layout.split_record_name(name) is None
