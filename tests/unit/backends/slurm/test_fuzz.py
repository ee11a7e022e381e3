"""Whatever squeue and sacct print: reading never raises, and never makes up an end."""

from datetime import UTC
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.backends.slurm import accounting, nodes, queue, refusals, submitted, text
from shared.backends.slurm.rows import Listed, NoAnswer
from tests.unit.backends.slurm.recorded import FOLDER, SEPARATOR, accounting_answer, queue_answer

ZONES = st.sampled_from([None, ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")])
OTHERS = ["", "0", "77", "N/A", "Unknown", "+", "CANCELLED by 0", "1:0", "0:9", "2026-10-25T02:30:00"]
WORDS = st.sampled_from(sorted(text.STATES) + OTHERS)
CUT = st.tuples(WORDS, st.integers(0, 12)).map(lambda cut: cut[0][: cut[1]] + "+")
FIELDS = st.one_of(WORDS, CUT, st.text(max_size=30))
LINES = sorted({line for path in FOLDER.glob("*.txt") for line in path.read_text().splitlines() if "|" in line})
ENDS = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
}  # fmt: skip


@given(FIELDS)
def test_no_end_is_made_up(said: str) -> None:
    """An end is in the text, word for word, or cut off at a `+` where nothing else can be meant."""
    read = text.state(said)
    if read is not None and read.word in ENDS:
        first = said.split()[0].upper()
        assert first.partition("+")[0] == read.word or (first.endswith("+") and read.word.startswith(first[:-1]))


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(list(queue.COLUMNS)), FIELDS), max_size=5), ZONES)
def test_any_fields_of_squeue_are_a_row_or_skipped(rows: list[dict[str, str]], zone: ZoneInfo | None) -> None:
    read = queue.parse(queue_answer(*rows), SEPARATOR, zone)
    assert isinstance(read, Listed)
    assert len(read.rows) + len(read.skipped) == len(rows)
    said = [state.word for row in rows if (state := text.state(row.get("State", "")))]
    assert all(row.state in said for row in read.rows)
    assert all(at is None or at.tzinfo is UTC for row in read.rows for at in (row.submitted_at, row.start, row.end))


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from(list(accounting.COLUMNS)), FIELDS), max_size=5), ZONES)
def test_any_fields_of_sacct_are_a_row_or_skipped(rows: list[dict[str, str]], zone: ZoneInfo | None) -> None:
    read = accounting.parse(accounting_answer(*rows), SEPARATOR, zone)
    assert isinstance(read, Listed)
    assert len(read.rows) + len(read.skipped) == len(rows)
    said = [state.word for row in rows if (state := text.state(row.get("State", "")))]
    assert all(row.state in said for row in read.rows)


@given(st.text(), ZONES)
def test_any_text_is_no_answer(printed: str, zone: ZoneInfo | None) -> None:
    assert isinstance(queue.parse(printed, SEPARATOR, zone), NoAnswer)
    assert isinstance(accounting.parse(printed, SEPARATOR, zone), NoAnswer)
    assert isinstance(nodes.parse(printed, SEPARATOR), NoAnswer)


@given(st.lists(st.integers(1, 10**9).map(str), max_size=4), st.data())
def test_an_answer_that_ends_within_a_row_is_none(ids: list[str], data: st.DataObject) -> None:
    whole = queue_answer(*({"JobArrayID": id, "State": "RUNNING", "Name": "x"} for id in ids))
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    read = queue.parse(cut, SEPARATOR, None)
    if cut.count(SEPARATOR) % len(queue.COLUMNS) or not cut.count(SEPARATOR):
        assert isinstance(read, NoAnswer)
    else:
        assert isinstance(read, Listed)
        assert len(read.rows) == cut.count(SEPARATOR) // len(queue.COLUMNS) - 1


@given(st.text(), st.text())
def test_any_words_of_sbatch_are_read(stdout: str, stderr: str) -> None:
    submitted.parse_submitted(stdout)
    refusals.refusal(stderr)
    refusals.answer_words(stderr)


@given(st.sampled_from(LINES), st.text(max_size=3), st.data())
def test_a_recorded_row_with_a_change_never_raises(line: str, change: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(line)))
    fields = (line[:at] + change + line[data.draw(st.integers(at, min(len(line), at + 3))) :]).split("|")
    for columns, answer, parse in (
        (list(queue.COLUMNS), queue_answer, queue.parse),
        (list(accounting.COLUMNS), accounting_answer, accounting.parse),
    ):
        assert isinstance(parse(answer(dict(zip(columns, fields, strict=False))), SEPARATOR, None), Listed)
