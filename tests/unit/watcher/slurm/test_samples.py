"""What a real cluster printed in each situation, and what is told of it: one row of a table for each moment."""

from collections.abc import Mapping
from typing import Any

import pytest

from services.watcher.slurm.findings import findings, given_up, is_stuck
from services.watcher.slurm.sighting import Sighting, segments
from tests.unit.backends.slurm.recorded import accounting_rows, queue_rows
from tests.unit.watcher.slurm.rows import JOB, NAME, at

NODES = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"

# what it is; file, moment of the queue, rows of accounting; what is told
SITUATIONS: list[tuple[str, str, int | None, tuple[int, ...], list[str]]] = [
    ("exit 0", "completed", 0, (), ["exited 0, 07:25:58-07:25:58"]),
    ("exit 0, half filled in accounting", "completed", None, (0,), []),
    ("exit 0, purged", "completed_purged", None, (0,), ["exited 0, 07:25:58-07:25:58"]),
    ("exit 3", "failed_exit3", 0, (0,), ["exited 3, 07:26:10-07:26:10"]),
    ("exit 3, half filled in accounting", "failed_exit3", None, (0,), []),
    ("exit 127", "exit127", 0, (0,), ["exited 127, 07:35:01-07:35:02"]),
    ("exit 137", "failed_exit137", 0, (0,), ["exited 137, 07:26:16-07:26:16"]),
    ("exit 137, as accounting keeps it", "failed_exit137", None, (0,), ["exited 9, 07:26:16-07:26:16"]),
    ("killed by signal 9", "failed_sigkill", 0, (0,), ["exited by signal 9, 07:26:12-07:26:12"]),
    ("killed by signal 9, purged", "failed_sigkill", None, (0,), ["exited by signal 9, 07:26:12-07:26:12"]),
    ("killed by signal 11", "failed_sigsegv", 0, (0,), ["exited by signal 11, 07:26:14-07:26:14"]),
    ("batch script killed", "signal_kill_batch", 0, (0,), ["exited by signal 9, 07:26:25-07:26:26"]),
    ("ended by TERM", "signal_term_full", 0, (0,), ["exited 15, 07:26:28-07:26:29"]),
    ("exit 7 in a trap", "signal_usr1_trapped", 0, (0,), ["exited 7, 07:26:20-07:26:23"]),
    ("killed by signal 10", "signal_usr1_untrapped", 0, (0,), ["exited by signal 10, 07:26:31-07:26:32"]),
    ("a signal that ended nothing", "signal_noflag", 0, (0,), ["running since 08:19:21, RUNNING"]),
    ("stopped and continued", "signal_cont", 0, (0,), ["running since 07:26:20, RUNNING"]),
    ("memory limit without cgroups", "oom", 0, (0,), ["exited by signal 9, 07:28:36-07:28:39"]),
    ("interpreter missing", "launch_bad_interp", 0, (0,), ["exited 2, 07:34:58-07:34:58"]),
    ("output file not writable", "launch_bad_output", 0, (0,), ["exited configuration, 07:34:53-07:34:53"]),
    ("working directory missing", "launch_bad_workdir", 0, (0,), ["exited 0, 07:34:56-07:34:56"]),
    ("running", "running", 0, (0,), ["running since 07:25:40, RUNNING"]),
    ("running, asked 10 s later", "running", 1, (1,), ["running since 07:25:40, RUNNING"]),
    ("running, as accounting alone says", "running", None, (1,), []),
    ("suspended", "suspended", 0, (0,), ["running since 07:25:40, SUSPENDED, suspended since 07:25:51"]),
    ("resumed", "suspended", 1, (1,), ["running since 07:25:40, RUNNING, suspended for 1 s"]),
    (
        "cancelled by somebody after a suspension",
        "cancelled_running",
        2,
        (2,),
        ["exited stopped_at_backend, 07:25:40-07:25:53, suspended for 1 s: cancelled by uid 0"],
    ),
    ("cancelled, in its epilog", "cancelled_running", 0, (), ["running since 07:25:40, COMPLETING"]),
    (
        "cancelled though it ignores TERM",
        "cancelled_ignores_term",
        1,
        (1,),
        ["exited stopped_at_backend, 07:49:39-07:49:40: cancelled by uid 0"],
    ),
    ("ignores TERM, in its epilog", "cancelled_ignores_term", 0, (0,), ["running since 07:49:39, COMPLETING"]),
    (
        "cancelled before its start",
        "cancelled_pending",
        0,
        (0,),
        ["exited stopped_at_backend, never started-07:28:03: cancelled by uid 0"],
    ),
    (
        "cancelled in the line, with a start in accounting",
        "pending_priority",
        None,
        (0,),
        ["exited stopped_at_backend, never started-07:28:12: cancelled by uid 0"],
    ),
    ("time limit, after a node failed", "timeout", 1, (2, 3), [
        "requeued 07:34:52-07:35:20, NODE_FAIL",
        "exited time_limit, 07:37:21-07:38:47",
    ]),
    ("the same, purged", "timeout", None, (1, 0), [
        "requeued 07:34:52-07:35:20, NODE_FAIL",
        "exited time_limit, 07:37:21-07:38:47",
    ]),
    ("the same before accounting knows it", "timeout", 0, (), [
        "requeued unseen-07:35:20, REQUEUED, estimated",
        "exited time_limit, 07:37:21-07:38:47",
    ]),
    ("node failed", "node_fail", 0, (0,), ["exited node_lost, 07:35:20-07:35:20"]),
    ("slurmd died", "node_fail_slurmd_dead", 0, (0,), ["exited node_lost, 07:47:07-07:47:41"]),
    ("slurmd died, queued again", "node_fail_slurmd_dead", 1, (1, 2), [
        "requeued 07:47:07-07:47:41, NODE_FAIL",
        "pending, PENDING: BeginTime: it may not start before its begin time",
    ]),
    ("queued again, accounting lags", "node_fail_slurmd_dead", 2, (), [
        "requeued unseen-07:47:41, REQUEUED, estimated",
        "pending, PENDING: BeginTime: it may not start before its begin time",
    ]),
    ("requeued", "requeued", 1, (1, 2), [
        "requeued 07:26:38-07:26:40, REQUEUED",
        "pending, PENDING: BeginTime: it may not start before its begin time",
    ]),
    ("requeued, as accounting alone says", "requeued", None, (0,), []),
    ("requeued, then cancelled", "requeued", 2, (3, 4), [
        "requeued 07:26:38-07:26:40, REQUEUED",
        "exited stopped_at_backend, never started-07:26:45: cancelled by uid 0",
    ]),
    ("requeued in a special exit", "special_exit_running", 0, (0, 1), [
        "requeued 07:27:53-07:27:54, REQUEUED",
        "stuck, SPECIAL_EXIT: job requeued in held state: somebody requeued it and holds it",
    ]),
    ("waits for a dependency", "dependency", 0, (), [
        "pending, PENDING: Dependency: a job that it depends on has not ended",
    ]),
    ("its dependency is met", "dependency", 1, (0,), ["exited 0, 07:28:25-07:28:25"]),
    ("its dependency can never be met", "dependency_never", 0, (0,), [
        "stuck, PENDING: DependencyNeverSatisfied: a job that it depends on has ended otherwise than it needs",
    ]),
    ("held", "pending_held", 0, (), ["stuck, PENDING: JobHeldUser: its owner holds it in Slurm"]),
    ("waits for its begin", "pending_begintime", 0, (0,), [
        "pending, PENDING: BeginTime: it may not start before its begin time",
    ]),
    ("waits for a drained node", "pending_drained", 0, (0,), [
        f"pending, PENDING: {NODES}: Slurm says why in its own words",
    ]),
    ("its node is back", "pending_drained", 2, (2,), ["running since 07:35:16, RUNNING"]),
    ("waits for its partition", "pending_partition_down", 0, (), [
        "pending, PENDING: PartitionDown: its partition is down",
    ]),
    ("waits behind others", "pending_priority", 0, (), [
        "pending, PENDING: Priority: jobs of a higher priority are before it",
    ]),
    ("waits for room", "pending_resources", 0, (), [
        "pending, PENDING: Resources: it is next in line and waits for nodes, cores or GPUs to become free",
    ]),
    ("its node drains", "node_draining", 0, (0,), ["running since 07:35:04, RUNNING"]),
    ("the controller was down", "ctld_down_job_running", 0, (0,), ["running since 07:40:19, RUNNING"]),
    ("the controller was started again", "ctld_restart", 3, (3,), ["running since 07:39:54, RUNNING"]),
    ("waits through a restart", "ctld_restart", 2, (2,), [
        "pending, PENDING: Resources: it is next in line and waits for nodes, cores or GPUs to become free",
    ]),
    ("slurmd was started again", "slurmd_restart", 1, (1,), ["exited 0, 07:46:41-07:46:53"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "moment", "accounted", "expected"), [row[1:] for row in SITUATIONS], ids=[row[0] for row in SITUATIONS]
)
def test_a_situation(file: str, moment: int | None, accounted: tuple[int, ...], expected: list[str]) -> None:
    queue = None if moment is None else queue_rows(f"{file}.txt")[moment]
    past = accounting_rows(f"{file}.txt") if accounted else []
    found = segments(queue, [past[number] for number in accounted])
    seen = Sighting(NAME, JOB, 1, "acme", "27", found)
    told = [said(finding.kind, finding.fact, stuck=is_stuck(seen)) for finding in findings(seen)]
    assert told == expected
    assert not is_stuck(seen) or given_up(seen, at(0))[-1].fact["reason"] == "configuration"


def said(kind: str, fact: Mapping[str, Any], *, stuck: bool) -> str:
    """A finding in words."""
    match kind:
        case "seen_pending":
            return f"{'stuck' if stuck else 'pending'}, {fact['raw_state']}: {fact['raw_reason']}"
        case "seen_running":
            since = f", suspended since {clock(fact['suspended_since'])}" if fact["suspended_since"] else ""
            return f"running since {clock(fact['started_at'])}, {fact['raw_state']}{since}{suspension(fact)}"
        case "segment_requeued":
            estimated = ", estimated" if fact["estimated"] else ""
            start = clock(fact["started_at"]) or "unseen"
            return f"requeued {start}-{clock(fact['ended_at'])}, {fact['raw_reason']}{estimated}{suspension(fact)}"
    how = fact["reason"] or (f"by signal {fact['signal']}" if fact["signal"] else fact["code"])
    times = f"{clock(fact['started_at']) or 'never started'}-{clock(fact['ended_at'])}"
    return f"exited {how}, {times}{suspension(fact)}" + (f": {fact['message']}" if fact["message"] else "")


def clock(moment: str | None) -> str | None:
    """The time of the day."""
    return moment and moment[11:19]


def suspension(fact: Mapping[str, Any]) -> str:
    """How long it was suspended, if it was."""
    return f", suspended for {fact['suspended_ms'] // 1000} s" if fact["suspended_ms"] else ""
