"""Text that others wrote cannot drive the terminal, forge a line, or get lost."""

import json

import pytest

from services.cli.escapes import json_text, marked, printable, printable_chunks


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param("\x1b]0;owned\x07", "\\x1b]0;owned\\x07", id="escape and bell"),
        pytest.param("a\x9bb", "a\\x9bb", id="a C1 control"),
        pytest.param("a\u202eb", "a\\u202eb", id="a bidirectional override"),
        pytest.param("a\r\nb", "a\\r\\nb", id="line ends"),
        pytest.param("a\udc80b", "a\\udc80b", id="half of a surrogate pair"),
        pytest.param("naïve 日本 [bold] :smile:", "naïve 日本 [bold] :smile:", id="ordinary text"),
    ],
)
def test_what_is_not_printable_is_shown_as_an_escape(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_markup_in_a_name_is_only_text() -> None:
    assert marked("[red]x") == "\\[red]x"


def test_a_log_keeps_line_ends_and_tabs_and_its_characters_across_chunks() -> None:
    chunks = ["é\t1\n".encode()[:1], "é\t1\n".encode()[1:], b"\x1b[2J\r\n", b"\xff"]
    assert "".join(printable_chunks(iter(chunks))) == "é\t1\n\\x1b[2J\\r\n\\xff"


def test_json_holds_no_control_character_and_means_the_same() -> None:
    value = {"name": "a\x1b\x9b\u202e\U000e0001é\ud800"}
    text = json_text(value, indent=2)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "é" in text
    assert json.loads(text) == value
