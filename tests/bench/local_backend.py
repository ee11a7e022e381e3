"""How fast the local backend runs 100 jobs of /bin/true, records included, and what one costs of CPU time:
`python -m tests.bench.local_backend`. CPU time says more than jobs/s on a machine that does other things too."""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from shared.backends.local.client import LocalClient
from shared.backends.local.messages import CouldNotAsk, LaunchKind, LaunchRequest
from shared.backends.local.names import submission_name
from shared.backends.local.observer import LocalState, Observer

REPOSITORY = Path(__file__).parents[2]
JOBS = 100


async def _requests(client: LocalClient, round_number: int) -> list[LaunchRequest]:
    requests = []
    for index in range(JOBS):
        job = f"r{round_number}j{index}"
        directory = await client.make_attempt_directory("acme", job, 1)
        (directory / "e1").mkdir()
        requests.append(LaunchRequest(submission_name("bench", job, 1, "t"), "acme", job, "e1", ("/bin/true",)))
    return requests


async def _round(client: LocalClient, observer: Observer, round_number: int) -> tuple[float, float, int]:
    requests = await _requests(client, round_number)
    names = {request.submission for request in requests}
    began = time.perf_counter()
    answers = await client.launch(requests)
    answered = time.perf_counter() - began
    assert all(answer.kind is LaunchKind.ACCEPTED for answer in answers), answers
    looks = 0
    while True:
        looks += 1
        seen = observer.observe().submissions
        if sum(one.submission in names and one.state is LocalState.EXITED for one in seen) == JOBS:
            return answered, time.perf_counter() - began, looks
        await asyncio.sleep(0.02)


async def _host_answers(client: LocalClient) -> None:
    for _ in range(1000):
        try:
            await client.status()
        except CouldNotAsk:
            await asyncio.sleep(0.01)
        else:
            return


async def _latency(client: LocalClient, observer: Observer) -> float:
    directory = await client.make_attempt_directory("acme", "latency", 1)
    (directory / "e1").mkdir()
    name = submission_name("bench", "latency", 1, "t")
    began = time.perf_counter()
    await client.launch([LaunchRequest(name, "acme", "latency", "e1", ("/bin/true",))])
    while True:
        if any(one.submission == name and one.state is LocalState.EXITED for one in observer.observe().submissions):
            return time.perf_counter() - began
        await asyncio.sleep(0.001)


def _cpu_milliseconds(pid: int) -> float:
    """Of the host and of every supervisor and command that it or they have waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(ticks) for ticks in fields[11:15]) * 1000 / os.sysconf("SC_CLK_TCK")


def _spawned_milliseconds(times: int) -> float:
    """What starting /bin/true by hand costs of CPU time, without any supervision."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(times):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / times


def _resident_megabytes(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def main() -> None:
    """Three rounds, then what it costs to look at everything that has ended."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        root = Path(folder) / "local"
        command = [sys.executable, "-m", "shared.backends.local.host", "--root", str(root)]
        host = subprocess.Popen(command, cwd=REPOSITORY)  # noqa: ASYNC220 - measured from outside, ended below
        try:
            client, observer = LocalClient(root), Observer(root)
            await _host_answers(client)
            before_all = _cpu_milliseconds(host.pid)
            for round_number in range(3):
                answered, ended, looks = await _round(client, observer, round_number)
                print(
                    f"local backend: {JOBS} launches answered in {answered:.2f} s, all ended and recorded in "
                    f"{ended:.2f} s ({JOBS / ended:.0f} jobs/s), {looks} looks"
                )
            await asyncio.sleep(3)  # until supervisors that wait for more are let go, and counted
            spent_ms = (_cpu_milliseconds(host.pid) - before_all) / (3 * JOBS)
            print(
                f"{spent_ms:.1f} ms of CPU a job; starting /bin/true by hand costs {_spawned_milliseconds(200):.1f} ms"
            )
            print(f"one job from launch to seen end: {1000 * await _latency(client, observer):.0f} ms")
            print(f"host: {_resident_megabytes(host.pid):.1f} MB resident")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            for _ in range(500):
                observer.observe()
            spent = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
            print(f"one look at {len(observer.observe().submissions)} ended jobs: {spent * 1e6 / 500:.0f} us of CPU")
        finally:
            host.terminate()
            host.wait(10)


if __name__ == "__main__":
    asyncio.run(main())
