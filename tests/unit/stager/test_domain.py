"""What the stager does about a record, by what its row says: every pair decided, no two facts that contradict."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.stager import domain
from services.stager.domain import Known, Move, Stage, concerns, decide
from shared.lifecycle import facts as f
from shared.lifecycle import inputs as i
from shared.lifecycle.advance import advance, create
from shared.lifecycle.inputs import AnyInput
from shared.lifecycle.record import JobRecord, Resources

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SEGMENT = f.SegmentKey(submission="s", created_at=NOW)


def heading(n: int) -> dict[str, Any]:
    return {"job": "j1", "tenant": "acme", "attempt": 1, "version": f.Version(n=n), "at": NOW, "source": "x"}


ADMITTED = f.Admitted(**heading(1), admission=1)
STAGED = f.Staged(**heading(2), directory="work/acme/j1/a1/e1", nothing_to_copy=False)
ALL_STAGED = f.Staged(**heading(2), directory="work/acme/j1/a1/e1", nothing_to_copy=True)
INVALID = f.InputInvalid(**heading(2), findings=(f.Finding(code="c", place="p", message="m"),))
ACCEPTED = f.Accepted(**heading(3), segment=SEGMENT, backend="local", cluster="local", ref="s")
RAN = f.LauncherSealed(**heading(5), ran=True)
NEVER_RAN = f.LauncherSealed(**heading(5), ran=False)
REFUSED = f.LaunchRefused(**heading(4), message="no")
SEALED = f.StagingSealed(**heading(6), staged=True, outcome="verified")
WITH_OUTPUTS = f.StagingSealed(**heading(6), staged=True, outcome="verified", manifest="m")
STOP = i.Stop(actor="rin", at=NOW)


def exited(code: int | None, **more: Any) -> f.Exited:
    return f.Exited(**heading(4), segment=SEGMENT, code=code, ended_at=NOW, raw_state="exited", **more)


REQUEUED = f.SegmentRequeued(**heading(7), segment=SEGMENT, ended_at=NOW, raw_reason="preempted")


def record(*inputs: AnyInput) -> JobRecord:
    """An admitted job after these inputs."""
    made = create(
        id="j1",
        tenant="acme",
        user="rin",
        name="n",
        spec_digest="sha256:0",
        resources=Resources(),
        has_outputs=True,
        now=NOW,
    )
    return advance(made, [ADMITTED, *inputs], NOW).record


def move(stage: Stage | None, *inputs: AnyInput, seq: int | None = None) -> Move:
    """By default the row has seen this very record: the event is a question."""
    asking = record(*inputs)
    directory = "work/acme/j1/a1/e1" if stage is Stage.SEALED else None
    rows = {} if stage is None else {1: Known(1, stage, 1, asking.seq if seq is None else seq, directory)}
    return decide(asking, rows)


RESTORED = domain.Adopt(Stage.STAGED, "work/acme/j1/a1/e1", None)
VOTED = domain.Adopt(Stage.SEALED, "work/acme/j1/a1/e1", None)
BACK = domain.Adopt(Stage.SEALED, "work/acme/j1/a1/e1", "m")
COPY = domain.CopyBack("work/acme/j1/a1/e1", True)
CASES: dict[str, tuple[tuple[AnyInput, ...], dict[Stage | None, Move]]] = {
    "inputs are to be staged": (
        (),
        {
            None: domain.StageIn(), Stage.STAGE_IN: domain.Note(), Stage.STAGED: domain.Answer(),
            Stage.COPY_BACK: domain.Note(), Stage.SEALED: domain.Answer(), Stage.OVER: domain.Drop(),
        },
    ),
    "it is to be stopped before it was staged": (
        (STOP,),
        {
            None: domain.Seal(staged=False), Stage.STAGE_IN: domain.Seal(staged=False), Stage.STAGED: domain.Answer(),
            Stage.COPY_BACK: domain.Seal(staged=True), Stage.SEALED: domain.Answer(), Stage.OVER: domain.Drop(),
        },
    ),
    "its input was refused": (
        (INVALID,),
        {None: domain.Seal(staged=False), Stage.STAGE_IN: domain.Seal(staged=False), Stage.SEALED: domain.Answer()},
    ),
    "it is staged and runs": (
        (STAGED, ACCEPTED),
        {None: domain.Drop(), Stage.STAGED: domain.Drop(), Stage.STAGE_IN: RESTORED},
    ),
    "its command has ended": (
        (STAGED, ACCEPTED, exited(0)),
        {
            None: COPY, Stage.STAGE_IN: COPY, Stage.STAGED: COPY, Stage.COPY_BACK: domain.Note(),
            Stage.SEALED: domain.Answer(), Stage.OVER: domain.Drop(),
        },
    ),
    "the backend would not take it": (
        (STAGED, REFUSED),
        {None: domain.Seal(staged=True), Stage.STAGED: domain.Seal(staged=True), Stage.SEALED: domain.Answer()},
    ),
    "it never ran": (
        (STAGED, STOP, NEVER_RAN),
        {None: domain.Seal(staged=True), Stage.STAGED: domain.Seal(staged=True), Stage.SEALED: domain.Answer()},
    ),
    "the backend runs it again": (
        (STAGED, ACCEPTED, exited(1), REQUEUED),
        {Stage.COPY_BACK: domain.ReturnToStaged(), Stage.STAGED: domain.Drop()},
    ),
    "with nothing to copy, staged was the vote": (
        (ALL_STAGED, ACCEPTED, exited(0)),
        {None: domain.Drop(), Stage.SEALED: domain.Drop()},
    ),
    "it is over": (
        (STAGED, ACCEPTED, exited(0), RAN, SEALED),
        {
            None: domain.Drop(), Stage.SEALED: domain.Drop(), Stage.STAGED: VOTED, Stage.STAGE_IN: VOTED,
            Stage.COPY_BACK: VOTED,
        },
    ),
    "its outputs are back and the launcher has not voted": (
        (STAGED, ACCEPTED, exited(0), WITH_OUTPUTS),
        {None: BACK, Stage.STAGE_IN: BACK, Stage.COPY_BACK: BACK, Stage.SEALED: domain.Drop()},
    ),
    "with nothing to copy it is staged and runs": (
        (ALL_STAGED, ACCEPTED), {Stage.STAGE_IN: domain.Adopt(Stage.SEALED, "work/acme/j1/a1/e1", None)},
    ),
    "it is deleted": (
        (STAGED, ACCEPTED, exited(0), RAN, SEALED, i.Delete(actor="rin", at=NOW)),
        {None: domain.Drop(), Stage.SEALED: domain.Close(deleted=True), Stage.OVER: domain.Close(deleted=True)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "stage", "wanted"),
    [(inputs, stage, wanted) for inputs, moves in CASES.values() for stage, wanted in moves.items()],
    ids=[f"{case}, {stage or 'no row'}" for case, (_, moves) in CASES.items() for stage in moves],
)
def test_decides(inputs: tuple[AnyInput, ...], stage: Stage | None, wanted: Move) -> None:
    assert move(stage, *inputs) == wanted


def test_staged_and_sealed_unstaged_can_never_both_be_said() -> None:
    """Whatever the record says: once staged was told, no vote says that nothing was staged."""
    for inputs, _ in CASES.values():
        for stage in (Stage.STAGED, Stage.COPY_BACK, Stage.SEALED):
            assert move(stage, *inputs) != domain.Seal(staged=False)


@pytest.mark.parametrize(
    ("ended", "succeeded"),
    [
        (exited(0), True), (exited(3), False), (exited(None, signal=9), False), (exited(None), False),
        (exited(0, reason="out_of_memory"), False),
    ],
    ids=["exit 0", "exit 3", "killed", "no witness of how", "out of memory with exit 0"],
)  # fmt: skip
def test_only_a_command_that_ended_well_owes_its_outputs(ended: f.Exited, succeeded: bool) -> None:
    assert move(Stage.STAGED, STAGED, ACCEPTED, ended) == domain.CopyBack("work/acme/j1/a1/e1", succeeded)


def test_an_older_version_of_the_record_is_dropped() -> None:
    newest = record().seq
    assert move(Stage.STAGE_IN, STOP, seq=record(STOP).seq + 1) == domain.Drop()
    assert decide(record(), {1: Known(1, Stage.SEALED, 2, 1)}) == domain.Drop(), "an earlier epoch"
    assert decide(record(), {1: Known(1, Stage.STAGE_IN, 1, newest)}) == domain.Note()


def test_what_was_told_is_on_its_way_until_the_same_record_asks() -> None:
    newest = record()
    assert move(Stage.SEALED, seq=newest.seq - 1) == domain.Note()
    assert move(Stage.STAGED, seq=newest.seq - 1) == domain.Note()
    assert move(Stage.STAGED, seq=newest.seq) == domain.Answer()
    restored = newest.model_copy(update={"epoch": 2, "seq": 1})
    assert decide(restored, {1: Known(1, Stage.SEALED, 1, 50)}) == domain.Answer()


def test_an_earlier_attempt_is_dropped() -> None:
    assert decide(record(), {2: Known(2, Stage.STAGE_IN, 1, 1)}) == domain.Drop()
    restored = record().model_copy(update={"epoch": 2})
    assert decide(restored, {2: Known(2, Stage.STAGE_IN, 1, 1)}) == domain.StageIn(), "the later one was lost"


def test_events_that_change_nothing_here_cost_nothing() -> None:
    assert concerns(record())
    assert not concerns(record(ALL_STAGED, ACCEPTED))
    assert not concerns(record(STAGED, ACCEPTED))
    assert concerns(record(STAGED, ACCEPTED), NOW), "its row may have been taken back in time"
    assert not concerns(record(STAGED, ACCEPTED), NOW - timedelta(hours=2)), "submitted long after the backup"
    assert concerns(record(STAGED, ACCEPTED, exited(0)))
    assert concerns(record(STAGED, ACCEPTED, exited(0), RAN, SEALED))


@pytest.mark.parametrize(
    "inputs", [(STAGED, ACCEPTED, exited(0), WITH_OUTPUTS), (STAGED, ACCEPTED, exited(0), RAN, SEALED)]
)
def test_a_row_that_took_over_a_vote_of_the_lost_time_learns_later_what_had_been_staged(
    inputs: tuple[AnyInput, ...],
) -> None:
    told = record(*inputs)
    row = Known(1, Stage.SEALED, 1, told.seq - 1)
    assert decide(told, {1: row}) == VOTED
    assert decide(told, {1: replace(row, directory="work/acme/j1/a1/e1")}) == domain.Drop()
