"""What is noted of calls of sbatch in an attempt's directory."""

from pathlib import Path

import pytest

from services.launcher.slurm import asked
from tests.unit.launcher.slurm.parts import at


def test_the_last_call_counts_until_it_is_withdrawn(tmp_path: Path) -> None:
    here = str(tmp_path)
    assert asked.last_over_at(here) is None
    asked.note(here, "t1", at(40))
    asked.note(here, "t2", at(90))
    (tmp_path / "env.t1").touch()
    asked.withdraw(here, "t1")
    assert asked.last_over_at(here) == at(90)
    asked.withdraw(here, "t2")
    assert asked.last_over_at(here) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"over_at": "soon"}'])
def test_a_note_that_cannot_be_read_is_of_some_call(tmp_path: Path, text: str) -> None:
    (tmp_path / "asked.json").write_text(text)
    over_at = asked.last_over_at(str(tmp_path))
    assert over_at is not None
    assert over_at < at(0)
