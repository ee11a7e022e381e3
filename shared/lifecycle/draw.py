"""The tables of the lifecycle as the README shows them: `python -m shared.lifecycle.draw` writes them there."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from shared.lifecycle.reasons import REASONS
from shared.lifecycle.states import STAGES, STATES, State
from shared.lifecycle.table import INPUT_KINDS, TRANSITIONS

BEGIN: Final = "<!-- drawn by `python -m shared.lifecycle.draw`: change the code, then run it -->"
END: Final = "<!-- end of what is drawn -->"
README: Final = Path(__file__).parent.parent / "README.md"


_GRID: Final = """\
What every input does in every state. `merge`: the evidence is merged and the record derived from it, with the verdict
if that seals the attempt; `adopt`: the same, of an attempt that was never admitted (after a restore); `evidence`:
segments and usage only; `wish`: `desired_state`; `ignore`: it is stale; `refuse`: the answer says why. A fact about an
older attempt is evidence of that one only. Evidence of a newer one makes that the current one and adopts it (after a
restore), unless the job succeeded; any other fact about a newer one is refused:"""


def drawn() -> str:
    """Everything between the markers."""
    parts = (
        ("What a job holds in each state:", _states()),
        ("The five stages, each `waiting`, `active`, `passed`, `failed` or `skipped`:", _stages()),
        ("End reasons, with the budget that an automatic retry may draw on:", _reasons()),
        (_GRID, _grid()),
    )
    return "\n\n".join(f"{title}\n\n{table}" for title, table in parts)


def redrawn(readme: str) -> str:
    """`readme` with the tables of now between its markers; raises ValueError where it has none."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no place for the tables: put these two lines there:\n{BEGIN}\n{END}")
    return f"{before}{BEGIN}\n\n{drawn()}\n\n{END}{after}"


def _states() -> str:
    head = ("state", "means", "GPUs", "occupies a job slot", "counts GPU time", "final")
    return _table(
        head,
        (
            (state, row.means, row.gpus, _yes(row.occupies_slot), _yes(row.counts_gpu_time), _yes(row.terminal))
            for state, row in STATES.items()
        ),
    )


def _stages() -> str:
    head = ("stage", "active in", "waits on", "passes when")
    return _table(
        head,
        ((f"`{stage}`", ", ".join(row.states), row.waits_on, row.passes_when) for stage, row in STAGES.items()),
    )


def _reasons() -> str:
    head = ("end reason", "state", "failed stage", "retry", "billed", "sentence")
    return _table(
        head,
        (
            (f"`{reason}`", row.state, row.stage or "", row.retry, _yes(row.billable), row.sentence)
            for reason, row in REASONS.items()
        ),
    )


def _grid() -> str:
    return _table(
        ("input", *State),
        ((f"`{kind}`", *(TRANSITIONS[state, kind].step for state in State)) for kind in INPUT_KINDS),
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    README.write_text(redrawn(README.read_text()))
