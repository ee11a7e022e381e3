"""What a real cluster printed in each situation is read as what it says: one row of a table for each moment."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.unit.backends.slurm.recorded import accounting_rows, queue_rows

NODES = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"

# file, which of its moments; id, state, reason, code:signal, restarts, seconds run
QUEUE = [
    ("array", 0, "52_0", "COMPLETED", None, "0:0", 0, 0),
    ("array", 4, "52_4", "RUNNING", None, "0:0", 0, 2),
    ("array", 6, "52_4", "CANCELLED", None, None, 0, 3),
    ("cancelled_ignores_term", 0, "97", "COMPLETING", None, "0:0", 0, 1),
    ("cancelled_ignores_term", 1, "97", "CANCELLED", None, "0:9", 0, 1),
    ("cancelled_pending", 0, "33", "CANCELLED", "BeginTime", "0:0", 0, 0),
    ("cancelled_running", 0, "15", "COMPLETING", None, "0:15", 0, 12),
    ("cancelled_running", 2, "15", "CANCELLED", None, "0:15", 0, 12),
    ("comment_name", 0, "96", "COMPLETED", None, "0:0", 0, 0),
    ("completed", 0, "16", "COMPLETED", None, "0:0", 0, 0),
    ("ctld_down_job_running", 0, "82", "RUNNING", None, "0:0", 0, 107),
    ("ctld_restart", 0, "78", "RUNNING", None, "0:0", 0, 2),
    ("ctld_restart", 2, "79", "PENDING", "Resources", "0:0", 0, 0),
    ("ctld_restart", 3, "78", "RUNNING", None, "0:0", 0, 13),
    ("dbd_down", 0, "84", "RUNNING", None, None, 0, 4),
    ("dbd_down", 1, "85", "FAILED", "NonZeroExitCode", None, 0, 0),
    ("dependency", 0, "49", "PENDING", "Dependency", "0:0", 0, 0),
    ("dependency", 1, "49", "COMPLETED", None, "0:0", 0, 0),
    ("dependency_never", 0, "50", "PENDING", "DependencyNeverSatisfied", "0:0", 0, 0),
    ("derived_exit", 0, "21", "COMPLETED", None, "0:0", 0, 0),
    ("exit127", 0, "71", "FAILED", "NonZeroExitCode", "127:0", 0, 1),
    ("failed_exit137", 0, "20", "FAILED", "NonZeroExitCode", "137:0", 0, 0),
    ("failed_exit3", 0, "17", "FAILED", "NonZeroExitCode", "3:0", 0, 0),
    ("failed_sigkill", 0, "18", "FAILED", "JobLaunchFailure", "0:9", 0, 0),
    ("failed_sigsegv", 0, "19", "FAILED", "JobLaunchFailure", "0:11", 0, 0),
    ("jobcomp_filetxt_no_dbd", 0, "1", "FAILED", "NonZeroExitCode", None, 0, 0),
    ("launch_bad_interp", 0, "70", "FAILED", "NonZeroExitCode", "2:0", 0, 0),
    ("launch_bad_output", 0, "68", "FAILED", "JobLaunchFailure", "0:53", 0, 0),
    ("launch_bad_workdir", 0, "69", "COMPLETED", None, "0:0", 0, 0),
    ("mariadb_down", 0, "86", "FAILED", "NonZeroExitCode", None, 0, 0),
    ("node_draining", 0, "72", "RUNNING", None, "0:0", 0, 2),
    ("node_fail", 0, "75", "NODE_FAIL", "NodeDown", "0:0", 0, 0),
    ("node_fail_slurmd_dead", 0, "90", "NODE_FAIL", "NodeDown", "0:0", 0, 34),
    ("node_fail_slurmd_dead", 1, "89", "PENDING", "BeginTime", "0:0", 1, 0),
    ("oom", 0, "59", "FAILED", "JobLaunchFailure", "0:9", 0, 3),
    ("pending_begintime", 0, "33", "PENDING", "BeginTime", "0:0", 0, 0),
    ("pending_drained", 0, "73", "PENDING", NODES, "0:0", 0, 0),
    ("pending_drained", 2, "73", "RUNNING", None, "0:0", 0, 0),
    ("pending_held", 0, "31", "PENDING", "JobHeldUser", "0:0", 0, 0),
    ("pending_partition_down", 0, "47", "PENDING", "PartitionDown", "0:0", 0, 0),
    ("pending_priority", 0, "36", "PENDING", "Priority", "0:0", 0, 0),
    ("pending_priority", 1, "36", "CANCELLED", "Priority", "0:0", 0, 0),
    ("pending_resources", 0, "35", "PENDING", "Resources", "0:0", 0, 0),
    ("permission", 0, "15160", "RUNNING", None, None, 0, 1),
    ("requeued", 0, "27", "PENDING", "BeginTime", "0:0", 1, 0),
    ("requeued", 2, "27", "CANCELLED", "BeginTime", "0:0", 1, 0),
    ("running", 0, "15", "RUNNING", None, "0:0", 0, 1),
    ("running", 1, "15", "RUNNING", None, "0:0", 0, 10),
    ("signal_cont", 0, "22", "RUNNING", None, "0:0", 0, 2),
    ("signal_kill_batch", 0, "23", "FAILED", "JobLaunchFailure", "0:9", 0, 1),
    ("signal_noflag", 0, "1", "RUNNING", None, "0:0", 0, 8),
    ("signal_term_full", 0, "24", "FAILED", "NonZeroExitCode", "15:0", 0, 1),
    ("signal_usr1_trapped", 0, "22", "FAILED", "NonZeroExitCode", "7:0", 0, 3),
    ("signal_usr1_untrapped", 0, "25", "FAILED", "JobLaunchFailure", "0:10", 0, 1),
    ("slurmd_restart", 0, "87", "RUNNING", None, "0:0", 0, 5),
    ("slurmd_restart", 1, "87", "COMPLETED", None, "0:0", 0, 12),
    ("special_exit_running", 0, "30", "SPECIAL_EXIT", "job requeued in held state", "0:0", 1, 0),
    ("squeue_multi", 0, "67", "RUNNING", None, None, 0, 0),
    ("suspended", 0, "15", "SUSPENDED", None, "0:0", 0, 11),
    ("suspended", 1, "15", "RUNNING", None, "0:0", 0, 11),
    ("timeout", 0, "64", "TIMEOUT", "TimeLimit", "0:15", 1, 86),
]

# file, which of its rows; id, state, who cancelled, code:signal, start, end, seconds, whether it is half filled
ACCOUNTING = [
    ("array", 1, "52_1", "FAILED", None, "4:0", "07:28:30", "07:28:30", 0, False),
    ("array", 2, "52_2", "FAILED", None, "0:9", "07:28:30", "07:28:30", 0, False),
    ("array", 4, "52_4", "RUNNING", None, "0:0", "07:28:31", None, 2, False),
    ("cancelled_ignores_term", 0, "97", "CANCELLED", 0, "0:0", "07:49:39", "07:49:40", 1, False),
    ("cancelled_pending", 0, "33", "CANCELLED", 0, "0:0", None, "07:28:03", 0, False),
    ("cancelled_running", 0, "15", "CANCELLED", 0, "0:0", "07:25:40", "07:25:53", 12, False),
    ("comment_name", 0, "96", "COMPLETED", None, "0:0", "07:49:36", "07:49:36", 0, True),
    ("completed", 0, "16", "COMPLETED", None, "0:0", "07:25:58", "07:25:58", 0, True),
    ("completed_purged", 0, "16", "COMPLETED", None, "0:0", "07:25:58", "07:25:58", 0, False),
    ("ctld_down_job_running", 0, "82", "RUNNING", None, "0:0", "07:40:19", None, 107, False),
    ("ctld_restart", 0, "78", "RUNNING", None, "0:0", "07:39:54", None, 3, False),
    ("ctld_restart", 2, "79", "PENDING", None, "0:0", None, None, 0, False),
    ("dependency", 0, "49", "COMPLETED", None, "0:0", "07:28:25", "07:28:25", 0, False),
    ("dependency_never", 0, "50", "PENDING", None, "0:0", None, None, 0, False),
    ("derived_exit", 0, "21", "COMPLETED", None, "0:0", "07:26:18", "07:26:18", 0, True),
    ("exit127", 0, "71", "FAILED", None, "127:0", "07:35:01", "07:35:02", 1, False),
    ("failed_exit137", 0, "20", "FAILED", None, "9:0", "07:26:16", "07:26:16", 0, False),
    ("failed_exit3", 0, "17", "FAILED", None, "3:0", "07:26:10", "07:26:10", 0, True),
    ("failed_sigkill", 0, "18", "FAILED", None, "0:9", "07:26:12", "07:26:12", 0, False),
    ("failed_sigsegv", 0, "19", "FAILED", None, "0:11", "07:26:14", "07:26:14", 0, True),
    ("launch_bad_interp", 0, "70", "FAILED", None, "2:0", "07:34:58", "07:34:58", 0, True),
    ("launch_bad_output", 0, "68", "FAILED", None, "0:53", "07:34:53", "07:34:53", 0, False),
    ("launch_bad_workdir", 0, "69", "COMPLETED", None, "0:0", "07:34:56", "07:34:56", 0, True),
    ("node_draining", 0, "72", "PENDING", None, "0:0", "07:35:04", None, 2, True),
    ("node_fail", 0, "75", "NODE_FAIL", None, "0:0", "07:35:20", "07:35:20", 0, False),
    ("node_fail_slurmd_dead", 0, "90", "NODE_FAIL", None, "0:0", "07:47:07", "07:47:41", 34, False),
    ("node_fail_slurmd_dead", 1, "89", "NODE_FAIL", None, "0:0", "07:47:07", "07:47:41", 34, False),
    ("node_fail_slurmd_dead", 2, "89", "PENDING", None, "0:0", None, None, 0, False),
    ("oom", 0, "59", "FAILED", None, "0:9", "07:28:36", "07:28:39", 3, False),
    ("pending_begintime", 0, "33", "PENDING", None, "0:0", None, None, 0, False),
    ("pending_drained", 0, "73", "PENDING", None, "0:0", None, None, 0, False),
    ("pending_drained", 2, "73", "RUNNING", None, "0:0", "07:35:16", None, 1, False),
    ("pending_priority", 0, "36", "CANCELLED", 0, "0:0", "07:28:12", "07:28:12", 0, False),
    ("requeued", 1, "27", "REQUEUED", None, "0:0", "07:26:38", "07:26:40", 2, False),
    ("requeued", 2, "27", "PENDING", None, "0:0", None, None, 0, False),
    ("requeued", 4, "27", "CANCELLED", 0, "0:0", None, "07:26:45", 0, False),
    ("running", 0, "15", "PENDING", None, "0:0", "07:25:40", None, 1, True),
    ("running", 1, "15", "RUNNING", None, "0:0", "07:25:40", None, 10, False),
    ("signal_cont", 0, "22", "RUNNING", None, "0:0", "07:26:20", None, 2, False),
    ("signal_kill_batch", 0, "23", "FAILED", None, "0:9", "07:26:25", "07:26:26", 1, True),
    ("signal_noflag", 0, "1", "RUNNING", None, "0:0", "08:19:21", None, 8, False),
    ("signal_term_full", 0, "24", "FAILED", None, "15:0", "07:26:28", "07:26:29", 1, True),
    ("signal_usr1_trapped", 0, "22", "FAILED", None, "7:0", "07:26:20", "07:26:23", 3, False),
    ("signal_usr1_untrapped", 0, "25", "FAILED", None, "0:10", "07:26:31", "07:26:32", 1, False),
    ("slurmd_restart", 1, "87", "COMPLETED", None, "0:0", "07:46:41", "07:46:53", 12, False),
    ("special_exit_running", 0, "30", "REQUEUED", None, "0:0", "07:27:53", "07:27:54", 1, False),
    ("special_exit_running", 1, "30", "PENDING", None, "0:0", None, None, 0, False),
    ("suspended", 0, "15", "SUSPENDED", None, "0:0", "07:25:40", None, 11, False),
    ("timeout", 0, "64", "NODE_FAIL", None, "0:0", "07:34:52", "07:35:20", 28, False),
    ("timeout", 1, "64", "TIMEOUT", None, "0:0", "07:37:21", "07:38:47", 86, False),
]


def at(clock: str | None) -> datetime | None:
    """A time of the day on which the samples were recorded."""
    return datetime.fromisoformat(f"2026-11-30T{clock}").replace(tzinfo=UTC) if clock else None


@pytest.mark.parametrize(
    ("file", "moment", "id", "state", "reason", "exit", "restarts", "seconds"),
    QUEUE,
    ids=[f"{row[0]} {row[1]}" for row in QUEUE],
)
def test_a_moment_of_the_queue(
    file: str, moment: int, id: str, state: str, reason: str | None, exit: str | None, restarts: int, seconds: int
) -> None:
    row = queue_rows(f"{file}.txt")[moment]
    assert (row.id, row.state, row.reason, row.restarts) == (id, state, reason, restarts)
    assert (f"{row.exit.code}:{row.exit.signal}" if row.exit else None) == exit
    assert row.run_time is not None
    assert row.run_time.total_seconds() == seconds
    assert row.completing == (state == "COMPLETING")
    assert row.submitted_at is not None
    assert not row.doubtful


@pytest.mark.parametrize(
    ("file", "row_number", "id", "state", "cancelled_by", "exit", "start", "end", "seconds", "half_filled"),
    ACCOUNTING,
    ids=[f"{row[0]} {row[1]}" for row in ACCOUNTING],
)
def test_a_row_of_accounting(
    file: str,
    row_number: int,
    id: str,
    state: str,
    cancelled_by: int | None,
    exit: str,
    start: str | None,
    end: str | None,
    seconds: int,
    half_filled: bool,
) -> None:
    row = accounting_rows(f"{file}.txt")[row_number]
    assert (row.id, row.state, row.cancelled_by, row.half_filled) == (id, state, cancelled_by, half_filled)
    assert row.exit is not None
    assert f"{row.exit.code}:{row.exit.signal}" == exit
    assert (row.start, row.end) == (at(start), at(end))
    assert row.elapsed is not None
    assert row.elapsed.total_seconds() == seconds
    assert not row.doubtful


def test_a_name_and_a_comment_are_kept_as_they_are() -> None:
    [in_queue], [in_accounting] = queue_rows("comment_name.txt"), accounting_rows("comment_name.txt")
    assert (in_queue.name, in_queue.comment, in_accounting.comment) == (
        "name with space",
        "idem=abc123;x",
        "idem=abc123;x",
    )


def test_what_a_job_holds_is_kept_as_it_is() -> None:
    row = queue_rows("running.txt")[0]
    assert (row.nodes, row.tres) == ("vm", "cpu=1,mem=100M,node=1,billing=1,gres/gpu=2")


def test_a_suspended_job_says_since_when_and_one_that_was_says_how_long() -> None:
    """`scontrol show job` said SuspendTime=07:25:51 while it was suspended; it was resumed a second later."""
    suspended, resumed = queue_rows("suspended.txt")
    assert (suspended.suspended_since, suspended.suspended) == (at("07:25:51"), timedelta(0))
    assert (resumed.suspended_since, resumed.suspended) == (None, timedelta(seconds=1))


def test_a_job_that_has_ended_or_waits_says_nothing_of_suspensions() -> None:
    assert queue_rows("timeout.txt")[0].suspended is None
    assert queue_rows("pending_begintime.txt")[0].suspended is None
