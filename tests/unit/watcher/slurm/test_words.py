"""The tables of Slurm's words are total over its manual pages, and unknown words end nothing."""

import pytest

from services.watcher.slurm.states import Means, state_row
from services.watcher.slurm.waiting import told, waiting
from shared.lifecycle.reasons import EndReason

DOCUMENTED = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "CONFIGURING",
    "COMPLETING",
    "DEADLINE",
    "EXPEDITING",
    "FAILED",
    "LAUNCH_FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "POWER_UP_NODE",
    "PREEMPTED",
    "RECONFIG_FAIL",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "RESV_DEL_HOLD",
    "REVOKED",
    "RUNNING",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
    "UPDATE_DB",
]
"""JOB STATE CODES, base states and flags, of squeue(1) and sacct(1)."""


@pytest.mark.parametrize("word", DOCUMENTED)
def test_every_documented_word_is_in_the_table(word: str) -> None:
    assert state_row(word) is not None


@pytest.mark.parametrize("word", ["CANCELLED by 61007", "CANCELLED+", "cancelled by 1000", " CANCELLED "])
def test_who_cancelled_it_cut_columns_and_blanks_do_not_hide_the_word(word: str) -> None:
    row = state_row(word)
    assert row is not None
    assert (row.means, row.reason) == (Means.ENDED, EndReason.STOPPED_AT_BACKEND)


@pytest.mark.parametrize(("word", "reason"), [("OUT_OF_ME+", "out_of_memory"), ("NODE_FAIL+", "node_lost")])
def test_a_cut_word_is_completed_where_only_one_begins_so(word: str, reason: str) -> None:
    row = state_row(word)
    assert row is not None
    assert row.reason == reason


@pytest.mark.parametrize("word", ["", "+", "RE+", "S+", "SOMETHING_NEW", "COMPLETED_MAYBE", "FAILED-rerun"])
def test_what_is_unknown_or_could_be_several_is_nothing(word: str) -> None:
    assert state_row(word) is None


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [
        ("Resources", False),
        ("Priority", False),
        ("Dependency", False),
        ("QOSMaxJobsPerUserLimit", False),
        ("QOSGrpCpuLimit", False),
        ("AssocGrpGRES", False),
        ("AssocMaxJobsLimit", False),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", False),
        ("Nodes required for job are DOWN, DRAINED or reserved", False),
        ("DependencyNeverSatisfied", True),
        ("launch failed requeued held", True),
        ("job requeued in held state", True),
        ("JobHeldAdmin", True),
        ("PartitionTimeLimit", True),
        ("InvalidQOS", True),
        (None, False),
        ("NobodyKnowsThis", False),
    ],
)
def test_what_can_never_start_is_told_from_what_waits(reason: str | None, stuck: bool) -> None:
    assert waiting(reason).stuck is stuck
    assert told(reason).startswith((reason or "None").partition(", UnavailableNodes")[0] + ": ")
