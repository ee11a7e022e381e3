"""A listing on a terminal keeps ids and states whole; in a pipe it is neither cut nor padded at the end."""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from services.cli import listing
from services.cli.listing import Listing

_ID = "j" + "0" * 26
_WHY = "waits for 8 GPUs: 3 of 8 are free, and four jobs of this tenant are before it"


def a_listing() -> Listing:
    rows = Listing("ID", "NAME", "STATE", "GPUS", "SUBMITTED", "WAITS ON / WHY", squeeze="NAME")
    rows.add_row(_ID, "train-the-whole-model-日本語", "SUCCEEDED", "8", "59 min ago", "")
    rows.add_row(_ID, "a", "QUEUED", "8", "3 s ago", _WHY)
    return rows


def on_a_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=width, color_system=None, soft_wrap=True)
    monkeypatch.setattr(listing, "out", console)
    a_listing().print()
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 132])
def test_a_terminal_shows_ids_and_states_whole_and_cuts_the_rest(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    header, first, second = on_a_terminal(monkeypatch, width)
    assert all(cell_len(line) <= width for line in (header, first, second))
    assert _ID in first
    assert "SUCCEEDED" in first
    assert second.rstrip().endswith("…")
    assert "train-" in first


def test_a_wide_terminal_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, first, second = on_a_terminal(monkeypatch, 240)
    assert "train-the-whole-model-日本語" in first
    assert _WHY in second


def test_a_pipe_gets_whole_lines_without_blanks_at_their_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listing, "out", Console(file=io.StringIO()))
    a_listing().print()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("WAITS ON / WHY")
    assert lines[2].endswith(_WHY)
    assert not any(line.endswith(" ") for line in lines)
    assert max(len(line) for line in lines) < 200


def test_a_forged_row_stays_in_its_cell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(listing, "out", Console(file=io.StringIO()))
    rows = Listing("NAME")
    rows.add_row("a\nb\x1b[2J")
    rows.print()
    assert capsys.readouterr().out == "NAME\na\\nb\\x1b[2J\n"
