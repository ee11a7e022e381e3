"""`kill -9` of each service while jobs run, then its restart: every job ends right and ran once, by a ledger."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.client.errors import NoServer, Unavailable
from shared.contracts.subjects import SERVICES
from tests.e2e.stacks import Stack, eventually

JOBS = 40


@pytest.mark.parametrize("service", SERVICES)
def test_jobs_end_right_and_run_once_though_a_service_is_killed(stack: Stack, service: str, ledger: Path) -> None:
    client = stack.client()
    script = 'echo $TIDEGATE_JOB_ID $TIDEGATE_ATTEMPT >> "$0"; sleep 0.2; echo done > done.txt; exit $1'
    jobs = [
        {
            "name": f"n{number}",
            "spec": {
                "command": ["sh", "-c", script, str(ledger), "7" if number % 5 == 4 else "0"],
                "outputs": ["done.txt"],
                "gpus": number % 2,
            },
        }
        for number in range(JOBS)
    ]
    first = client.call("POST", "/v1/jobs/batch", json={"jobs": jobs[: JOBS // 2]})["ids"]
    eventually(lambda: any(client.job(job).state == "RUNNING" for job in first), "a job to run")
    victim = stack.processes()[service]
    os.kill(victim["pid"], signal.SIGKILL)
    second: list[str] = []
    same_request = {"Idempotency-Key": f"second half, {service} killed"}

    def submitted() -> bool:
        """Tried until the api answers: the key makes one batch of however many tries arrive."""
        try:
            answer = client.call("POST", "/v1/jobs/batch", json={"jobs": jobs[JOBS // 2 :]}, headers=same_request)
        except (NoServer, Unavailable):
            return False
        second.extend(answer["ids"])
        return True

    eventually(submitted, "the api to take jobs again", 30)
    eventually(lambda: stack.processes()[service]["restarts"] > victim["restarts"], "its restart", 30)
    wanted = {job: 7 if number % 5 == 4 else 0 for number, job in enumerate([*first, *second])}
    for job, code in wanted.items():
        ended = client.wait(job)
        assert ended.state == ("FAILED" if code else "SUCCEEDED"), (job, ended.state, ended.message)
        assert ended.exit.code == code
        assert ended.attempts[-1].outputs is not None
        assert ended.attempts[-1].outputs.files == 1
    ran = sorted(ledger.read_text().split("\n")[:-1])
    assert ran == sorted(f"{job} 1" for job in wanted)
    _nothing_is_left(stack)


@pytest.fixture
def ledger() -> Iterator[Path]:
    """A file that every tenant's uid may append to, in a folder that a job's view of the file system shows."""
    with tempfile.TemporaryDirectory(prefix="tidegate-ledger-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        file = Path(folder) / "ran.txt"
        file.touch()
        file.chmod(0o666)
        yield file


def _nothing_is_left(stack: Stack) -> None:
    """No reservation, and no record of a job that the backend still holds open."""
    tenant = stack.client().call("GET", "/v1/whoami")["tenant"]

    def idle() -> bool:
        quota = stack.cli("quota", "get", tenant, "--json").json
        return (quota["slots_used"], quota["gpus_used"]) == (0, 0) and not list(
            (stack.home / "local" / "open").glob("*.json")
        )

    eventually(idle, "every reservation and record to be let go", 30)
