"""The tables in shared/README.md are drawn from the code."""

import pytest

from shared.lifecycle.draw import BEGIN, END, README, redrawn
from shared.lifecycle.reasons import EndReason
from shared.lifecycle.states import StageName, State


def test_the_readme_and_the_code_say_the_same() -> None:
    """If this fails: `python -m shared.lifecycle.draw`."""
    page = README.read_text()
    assert page == redrawn(page)


def test_every_word_is_in_it() -> None:
    tables = redrawn(f"{BEGIN}{END}")
    for word in (*State, *StageName, *EndReason):
        assert f"| {word} |" in tables or f"`{word}`" in tables


def test_a_page_without_markers_is_refused_with_the_lines_to_put_there() -> None:
    with pytest.raises(ValueError, match="put these two lines there"):
        redrawn("# What services share\n")
