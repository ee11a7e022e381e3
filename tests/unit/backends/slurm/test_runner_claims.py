"""An attempt's command runs once, whatever Slurm runs how often."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from shared.backends.slurm import script as script_module
from shared.backends.slurm.layout import CLAIM, REVOKED, claim_name, environment_name
from shared.backends.slurm.script import CLAIMED_ELSEWHERE, NOT_CLAIMED
from tests.servers import wait_until
from tests.unit.backends.slurm.runs import Attempt, is_running

LEDGER = ("sh", "-c", "echo ran >>ledger")
RACERS = 8


def ran(attempt: Attempt) -> int:
    """How often the command ran."""
    ledger = attempt.work / "ledger"
    return len(ledger.read_text().splitlines()) if ledger.exists() else 0


def written(attempt: Attempt) -> set[str]:
    """What lies in the attempt's directory for others to read."""
    return {name for name in os.listdir(attempt.directory) if not name.startswith(".")}


def submissions(attempt: Attempt) -> list[Path]:
    """Of two submissions, each handed to Slurm several times."""
    orders = (
        attempt.order(*LEDGER, token=f"t{number}", submission=f"tidegate.j1.a1.s{number % 2}")
        for number in range(RACERS)
    )
    return [attempt.submit(order) for order in orders]


@pytest.mark.parametrize("turn", range(3))
def test_of_many_submissions_at_once_one_runs(attempt: Attempt, turn: int) -> None:
    paths = submissions(attempt)
    processes = [attempt.start(path, job=str(number)) for number, path in enumerate(paths)]
    codes = [attempt.end(process)[0] for process in processes]
    assert sorted(codes) == [0] + [CLAIMED_ELSEWHERE] * (RACERS - 1)
    assert ran(attempt) == 1
    (end,) = attempt.records().exits.values()
    assert end.run.slurm_job_id == str(codes.index(0))


@pytest.mark.parametrize("turn", range(3))
def test_of_many_runs_of_one_script_at_once_one_runs(attempt: Attempt, turn: int) -> None:
    path = attempt.submit(attempt.order(*LEDGER))
    processes = [attempt.start(path) for _ in range(RACERS)]
    assert sorted(attempt.end(process)[0] for process in processes) == [0] + [CLAIMED_ELSEWHERE] * (RACERS - 1)
    assert ran(attempt) == 1


@pytest.mark.parametrize("turn", range(4))
def test_of_many_submissions_that_are_killed_at_any_point_at_most_one_runs(attempt: Attempt, turn: int) -> None:
    dice = random.Random(turn)
    processes = [attempt.start(path, job=str(number)) for number, path in enumerate(submissions(attempt))]
    for process in dice.sample(processes, RACERS - 2):
        time.sleep(dice.random() * 0.02)
        os.kill(process.pid, signal.SIGKILL)
    codes = [attempt.end(process)[0] for process in processes]
    last = attempt.end(attempt.start(attempt.submit(attempt.order(*LEDGER, token="last")), job="99"))[0]
    assert len([code for code in (*codes, last) if code == 0]) <= 1
    if last == 0:
        assert set(codes) <= {-signal.SIGKILL}
    if 0 in (*codes, last):
        assert ran(attempt) == 1
    assert ran(attempt) <= 1


def test_another_submissions_claim_leaves_nothing_but_a_line(attempt: Attempt) -> None:
    assert attempt.run(*LEDGER) == 0
    before = written(attempt)
    records = attempt.records()
    path = attempt.submit(attempt.order(*LEDGER, submission="tidegate.j1.a1.s2", token="t2"))
    code, said = attempt.end(attempt.start(path, job="8"))
    assert code == CLAIMED_ELSEWHERE
    assert said == f"tidegate: another submission has the claim of {attempt.directory}: nothing is run\n"
    assert (attempt.directory / environment_name("t2")).read_bytes() == b""
    assert written(attempt) == before | {environment_name("t2")}
    assert attempt.records() == records
    assert ran(attempt) == 1


@pytest.mark.parametrize("changed", [{"token": "t2"}, {"submission": "tidegate.j1.a1.s2"}, {"job": "j2"}])
def test_a_requeued_run_needs_the_claim_of_its_own_submission_and_token(
    attempt: Attempt, changed: dict[str, str]
) -> None:
    assert attempt.run(*LEDGER) == 0
    path = attempt.submit(attempt.order(*LEDGER, **changed))
    assert attempt.end(attempt.start(path, restart=1))[0] == CLAIMED_ELSEWHERE
    assert ran(attempt) == 1
    assert claim_name(1) not in written(attempt)


def test_a_requeued_run_needs_the_claim_of_its_own_slurm_job(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order(*LEDGER, may_requeue=True))
    assert attempt.end(attempt.start(path, job="7"))[0] == 0
    assert attempt.end(attempt.start(path, job="77", restart=1))[0] == CLAIMED_ELSEWHERE
    assert ran(attempt) == 1


def test_a_requeued_run_goes_on_under_a_claim_of_its_own(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order(*LEDGER, may_requeue=True))
    codes = [attempt.end(attempt.start(path, restart=restart))[0] for restart in (0, 1, 1, 3, 2, 0)]
    assert codes == [0, 0, CLAIMED_ELSEWHERE, 0, CLAIMED_ELSEWHERE, CLAIMED_ELSEWHERE]
    assert ran(attempt) == 3
    records = attempt.records()
    assert [claim.run.restart for claim in records.claims] == [0, 1, 2, 3]
    assert sorted(records.exits) == sorted(records.started) == [0, 1, 3]


def test_a_run_whose_earlier_runs_never_got_to_claim_takes_the_first_claim(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order(*LEDGER, may_requeue=True))
    assert attempt.end(attempt.start(path, restart=2))[0] == 0
    assert attempt.end(attempt.start(path, restart=1))[0] == CLAIMED_ELSEWHERE
    assert ran(attempt) == 1
    holder = attempt.records().holder
    assert holder is not None
    assert holder.restart == 2


def test_of_many_requeued_runs_at_once_one_runs(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order(*LEDGER, may_requeue=True))
    assert attempt.end(attempt.start(path))[0] == 0
    processes = [attempt.start(path, restart=1) for _ in range(RACERS)]
    assert sorted(attempt.end(process)[0] for process in processes) == [0] + [CLAIMED_ELSEWHERE] * (RACERS - 1)
    assert ran(attempt) == 2


def test_a_run_that_the_cluster_thought_dead_ends_its_command(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_module, "LOOK_SECONDS", 1)
    command = 'echo $$ >pid$SLURM_RESTART_COUNT; [ "$SLURM_RESTART_COUNT" ] || exec sleep 1000'
    path = attempt.submit(attempt.order("sh", "-c", command, may_requeue=True))
    stale = attempt.start(path)
    pid = int(attempt.await_file("pid"))
    assert attempt.end(attempt.start(path, restart=1))[0] == 0
    assert attempt.end(stale)[0] == -signal.SIGKILL
    assert not is_running(pid)
    exits = attempt.records().exits
    assert (exits[0].reason, exits[0].signal, exits[1].reason) == ("superseded", 9, None)


def test_a_revoked_attempt_runs_nothing_and_keeps_its_claim(attempt: Attempt) -> None:
    (attempt.directory / REVOKED).touch()
    assert attempt.run(*LEDGER) == CLAIMED_ELSEWHERE
    assert ran(attempt) == 0
    assert CLAIM in written(attempt)
    end = attempt.records().exits[0]
    assert (end.ran, end.code, end.reason) == (False, 75, "revoked")
    assert (attempt.directory / environment_name("t1")).read_bytes() == b""


def test_a_revocation_in_the_moment_of_the_claim_is_seen(attempt: Attempt) -> None:
    """The runner claims and then looks, the launcher revokes and then looks: one of them sees the other."""
    revokes = f'touch "{attempt.directory}/{REVOKED}"; exec /usr/bin/ln "$@"'
    path = attempt.submit_with(attempt.order(*LEDGER), "ln", revokes)
    assert attempt.end(attempt.start(path))[0] == CLAIMED_ELSEWHERE
    assert ran(attempt) == 0


def test_a_claim_is_ours_though_the_file_servers_answer_was_lost(attempt: Attempt) -> None:
    path = attempt.submit_with(attempt.order(*LEDGER), "ln", '/usr/bin/ln "$@"; exec /usr/bin/ln "$@"')
    assert attempt.end(attempt.start(path)) == (0, "")
    assert ran(attempt) == 1


def test_a_claim_is_not_ours_because_ln_says_so(attempt: Attempt) -> None:
    path = attempt.submit_with(attempt.order(*LEDGER), "ln", "exit 0")
    assert attempt.end(attempt.start(path))[0] == NOT_CLAIMED
    assert ran(attempt) == 0


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_claim_is_in_the_way_all_the_same(attempt: Attempt, make: object) -> None:
    assert callable(make)
    make(attempt.directory / CLAIM)
    assert attempt.run(*LEDGER) == CLAIMED_ELSEWHERE
    assert ran(attempt) == 0
    assert attempt.records().claim_unreadable


def test_without_its_directory_nothing_runs(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order(*LEDGER))
    moved = attempt.directory.rename(attempt.directory.parent / "elsewhere")
    assert attempt.end(attempt.start(path))[0] == NOT_CLAIMED
    assert not (moved / "r1" / "ledger").exists()


@pytest.mark.parametrize("job", ["", "7;x", '"', "a b"])
def test_outside_of_slurm_nothing_runs(attempt: Attempt, job: str) -> None:
    path = attempt.submit(attempt.order(*LEDGER))
    assert attempt.end(attempt.start(path, job=job))[0] == NOT_CLAIMED
    assert CLAIM not in written(attempt)


def test_a_command_is_not_up_before_its_claim_and_start_are_recorded(attempt: Attempt) -> None:
    assert attempt.run("sh", "-c", "ls ..") == 0
    assert {CLAIM, "started.0.json"} <= set(attempt.stdout().split())
    wait_until(lambda: "exit.0.json" in written(attempt), "its end recorded")
