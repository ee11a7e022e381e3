"""Whatever squeue and sacct print: putting it together never raises, and no end is told that is not in the text."""

from hypothesis import given, settings
from hypothesis import strategies as st

from services.watcher.slurm.blindness import Blind
from services.watcher.slurm.findings import findings, given_up, is_stuck
from services.watcher.slurm.joining import by_name, sighting
from services.watcher.slurm.sighting import Witness
from services.watcher.slurm.states import STATES, Means
from shared.backends.slurm import accounting, queue, text
from shared.backends.slurm.records import Records
from shared.backends.slurm.rows import Listed
from shared.lifecycle.facts import FACT
from tests.unit.backends.slurm.recorded import SEPARATOR, accounting_answer, queue_answer
from tests.unit.watcher.slurm.rows import JOB, NAME, at

TIMES = st.sampled_from(
    ["", "0", "N/A", "Unknown", *(str(int(at(seconds).timestamp())) for seconds in range(0, 90, 7))]
)
WORDS = st.one_of(st.sampled_from([*sorted(text.STATES), "SOMETHING_NEW", "", "+", "RE+"]), st.text(max_size=12))
STATE = st.one_of(
    WORDS, WORDS.map(lambda word: word[:5] + "+"), st.sampled_from(["CANCELLED by 7", "COMPLETED+COMPLETING"])
)
FIELD = st.one_of(st.sampled_from(["0:0", "0:9", "768", "9", "3", "00:10", "UNLIMITED", "n1"]), st.text(max_size=8))
ANY = {
    "Comment": st.sampled_from(["tidegate/1 t1 acme", "", "x"]),
    **dict.fromkeys(("Reason", "exit_code", "ExitCode", "RestartCnt", "TimeUsed", "ElapsedRaw", "TimeLimit"), FIELD),
    **dict.fromkeys(("NodeList", "Suspended", "Partition", "UserName", "User"), FIELD),
    **dict.fromkeys(("SubmitTime", "StartTime", "EndTime", "Submit", "Start", "End"), TIMES),
}
IDS = st.sampled_from(["27", "28", "27_4", "27+1", "27.batch", "x"])
NAMES = st.sampled_from([NAME, NAME.replace("tidegate", "other"), "COMPLETED"])
QUEUED = st.lists(st.fixed_dictionaries({**ANY, "JobArrayID": IDS, "Name": NAMES, "State": STATE}), max_size=3)
ACCOUNTED = st.lists(st.fixed_dictionaries({**ANY, "JobID": IDS, "JobName": NAMES, "State": STATE}), max_size=4)
ENDS = {word for word, row in STATES.items() if row.means is Means.ENDED}


@settings(max_examples=100)
@given(QUEUED, ACCOUNTED, st.booleans())
def test_no_end_is_made_up(queued: list[dict[str, str]], accounted: list[dict[str, str]], witnessed: bool) -> None:
    shown = queue.parse(queue_answer(*queued), SEPARATOR, None)
    past = accounting.parse(accounting_answer(*accounted), SEPARATOR, None)
    assert isinstance(shown, Listed)
    assert isinstance(past, Listed)
    names = by_name(shown.rows, past.rows, "tidegate")
    assert names.keys() <= {NAME}
    for name, rows in names.items():
        seen = sighting(name, rows, "acme", Records())
        if seen is None:
            continue
        if witnessed:
            seen = type(seen)(seen.name, JOB, 1, "acme", seen.id, seen.segments, (Witness(0, 0, None, at(40)),))
        blind = (Blind(at(10), at(70)),)
        told = [*findings(seen, blind), *(given_up(seen, at(90)) if is_stuck(seen) else ())]
        for finding in told:
            version = {"version": {"epoch": 1, "n": 1}, "at": at(0), "source": "watcher/hpc"}
            FACT.validate_python({"kind": finding.kind, "job": JOB, "attempt": 1, **finding.fact, **version})
        ends = [one.fact for one in findings(seen, blind) if one.kind == "exited"]
        if ends:
            read = [text.state(row["State"]) for row in (*queued, *accounted)]
            assert ends[0]["raw_state"] in {state.word for state in read if state is not None} & ENDS
        if any(fact["code"] == 0 for fact in ends):
            assert ends[0]["raw_state"] == "COMPLETED"
        if any(row.state not in ENDS for row in rows.queue if row.id == seen.id and row.submitted_at):
            assert not ends, "the controller has it alive"
