"""`tidegate restart` under load: every service is started again, and nobody who uses the stack sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.contracts.subjects import SERVICES
from tests.e2e.load import Requests
from tests.e2e.stacks import Stack


@pytest.fixture
def replicated(tmp_path: Path) -> Iterator[Stack]:
    """Two processes for requests to api; the other services are away while each is started again."""
    stack = Stack(tmp_path)
    stack.up("--virtual-gpus", "8", "--replicas", "api=2")
    yield stack
    stack.down()


def test_no_job_fails_and_no_request_is_refused_while_every_service_is_restarted(replicated: Stack) -> None:
    stack = replicated
    before = stack.processes()
    with Requests(stack) as requests:
        requests.more()
        ended = stack.cli("restart", seconds=600)
        requests.more()
    assert ended.code == 0, ended.err
    restarted = [line.split()[0] for line in ended.out.splitlines()]
    assert restarted == ["api", "api-2", *SERVICES[1:]]
    after = stack.processes()
    assert {name for name in after if after[name]["pid"] != before[name]["pid"]} == set(restarted)
    assert {row["state"] for row in after.values()} == {"running"}
    assert requests.failed == []
    client = stack.client()
    jobs = [client.wait(job) for job in requests.jobs]
    assert [job for job in jobs if (job.state, job.attempt) != ("SUCCEEDED", 1)] == []
