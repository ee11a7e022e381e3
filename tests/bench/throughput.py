"""`make bench`: jobs/s, submit-to-running, and what a job costs, on a stack of its own on this machine.

Figures come from the parts themselves: PostgreSQL's counters, the streams' sequences, strace on nats-server, /proc.
They are printed beside a limit of the same run: how many times this machine can start and reap `true` by itself.
"""

import argparse
import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import nats

from shared.client.client import Tidegate
from shared.contracts.subjects import SERVICES
from shared.lifecycle.states import State
from tests.e2e.stacks import Stack, superuser_url

AIM_JOBS_PER_SECOND = 100
AIM_IDLE_P50_MS = 150
AIM_MEMORY_MB = 150
_OPEN_STATES = ("QUEUED", "SUBMITTED", "PENDING", "RUNNING")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Counters:
    """Everything that is counted, at one instant."""

    at: float
    transactions: int
    wal_fsyncs: int
    wal_bytes: int
    messages: int
    cpu_seconds: Mapping[str, float]


def main() -> int:
    """Run it; 0 where every job succeeded."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=1000, help="how many in the batch")
    asked.add_argument("--idle", type=int, default=40, help="how many one by one")
    asked.add_argument("--slots", type=int, default=128, help="how many jobs the machine may run at once")
    options = asked.parse_args()
    spawned = spawn_limit(300)
    print(f"limit: this machine starts and reaps /bin/true {spawned:.0f} times a second, alone, from one process")
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        stack = Stack(Path(folder))
        stack.up("--virtual-gpus", "8", "--slots", str(options.slots))
        try:
            print(f"slots: {options.slots} jobs at once")
            return measure(stack, options.jobs, options.idle, spawned)
        finally:
            stack.down()


def measure(stack: Stack, jobs: int, idle: int, spawned: float) -> int:
    """Idle latency first, then the batch, with the counters before and after it."""
    with stack.client() as client:
        run_batch(client, 20)
        latencies = sorted(submit_to_running_ms(client) for _ in range(idle))
        p50, p99 = statistics.median(latencies), latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
        print(f"submit-to-running, idle, {idle} jobs one by one: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
        print(f"  ratio of p50 to the aim of {AIM_IDLE_P50_MS} ms: {p50 / AIM_IDLE_P50_MS:.2f}")
        before = asyncio.run(counters(stack))
        ids = run_batch(client, jobs)
        after = asyncio.run(counters(stack))
        states = [client.job(job).state for job in ids]
        nats_syncs = nats_syncs_per_job(stack, client, jobs // 2)
    took = after.at - before.at
    rate = jobs / took
    print(f"tidegate: {rate:.0f} jobs/s")
    print(f"  {jobs} jobs of `true` in one batch request, {states.count(State.SUCCEEDED)} succeeded, in {took:.1f} s")
    print(f"  ratio to the aim of {AIM_JOBS_PER_SECOND} jobs/s: {rate / AIM_JOBS_PER_SECOND:.2f}")
    print(f"  ratio to starting `true` by hand: {rate / spawned:.2f}")
    print(
        f"per job: {(after.transactions - before.transactions) / jobs:.2f} transactions, "
        f"{(after.messages - before.messages) / jobs:.2f} messages, "
        f"{(after.wal_fsyncs - before.wal_fsyncs) / jobs:.3f} fsyncs of PostgreSQL's WAL, "
        f"{(after.wal_bytes - before.wal_bytes) / jobs / 1000:.1f} kB of WAL, "
        + (
            "fsyncs of nats-server not counted: strace is not installed or not allowed"
            if nats_syncs is None
            else f"{nats_syncs:.3f} fsyncs of nats-server"
        )
    )
    print("process        CPU share  CPU ms/job  peak memory")
    over = []
    spending = {name: after.cpu_seconds[name] - before.cpu_seconds.get(name, 0.0) for name in after.cpu_seconds}
    for name, row in sorted(stack.processes().items(), key=lambda item: -spending.get(item[0], 0.0)):
        spent = spending.get(name, 0.0)
        peak = peak_memory_mb(row["pid"])
        print(f"  {name:<12} {spent / took:8.0%}  {spent / jobs * 1000:10.2f}  {peak:8.0f} MB")
        if name in SERVICES and peak > AIM_MEMORY_MB:
            over.append(name)
    dearest = sorted(spending, key=lambda name: -spending[name])[:3]
    print(
        f"{sum(spending.values()) / jobs * 1000:.1f} CPU ms/job in all; the biggest three costs: "
        + ", ".join(f"{name} {spending[name] / sum(spending.values()):.0%}" for name in dearest)
        + "; `runner` is the host, its supervisors and the commands"
    )
    print(f"services over {AIM_MEMORY_MB} MB: {', '.join(over) or 'none'}")
    return 0 if states == [State.SUCCEEDED] * jobs else 1


def run_batch(client: Tidegate, jobs: int) -> list[str]:
    """Submit `true` that many times in one request and wait until nothing is open."""
    body = {"jobs": [{"spec": {"command": ["true"]}}] * jobs}
    ids: list[str] = client.call("POST", "/v1/jobs/batch", json=body)["ids"]
    deadline = time.monotonic() + 60 + jobs
    while any(client.jobs(state=state, limit=1).items for state in _OPEN_STATES):
        if time.monotonic() > deadline:
            raise SystemExit("the batch did not end in time")
        time.sleep(0.1)
    return ids


def submit_to_running_ms(client: Tidegate) -> float:
    """From just before the request to the backend's own start of the command (one clock: one machine)."""
    before = datetime.now(UTC)
    answer = client.call("POST", "/v1/jobs", json={"spec": {"command": ["true"]}})
    job = client.wait(answer["id"])
    assert job.started_at is not None, f"{job.id} did not run: {job.message}"
    return (job.started_at - before).total_seconds() * 1000


def spawn_limit(times: int) -> float:
    """How many processes a second this machine starts and reaps without any queue around them."""
    started = time.monotonic()
    for _ in range(times):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    return times / (time.monotonic() - started)


async def counters(stack: Stack) -> Counters:
    """Read every counter now."""
    database = await asyncpg.connect(superuser_url(stack))
    try:
        await database.execute("SELECT pg_stat_force_next_flush()")
        transactions = await database.fetchval("SELECT sum(xact_commit)::bigint FROM pg_stat_database")
        wal_bytes = await database.fetchval("SELECT wal_bytes::bigint FROM pg_stat_wal")
        fsyncs = await database.fetchval("SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'")
    finally:
        await database.close()
    password = (stack.home / "secrets" / "admin.nats.password").read_text()
    broker = await nats.connect(
        stack.endpoint["nats_url"], user="admin", password=password, inbox_prefix="_INBOX_admin"
    )
    try:
        streams = await broker.jetstream().streams_info()
        messages = sum(stream.state.last_seq for stream in streams)
    finally:
        await broker.close()
    cpu = {name: cpu_seconds(row["pid"]) for name, row in stack.processes().items()}
    return Counters(time.monotonic(), transactions, fsyncs, wal_bytes, messages, cpu)


def nats_syncs_per_job(stack: Stack, client: Tidegate, jobs: int) -> float | None:
    """nats-server's fsyncs per job, counted by strace in a batch of its own since tracing slows it down; None where
    tracing is not possible."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    file = stack.home / "nats.strace"
    pid = str(stack.processes()["nats"]["pid"])
    words = [strace, "-f", "--seccomp-bpf", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(file), "-p", pid]
    tracer = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    if tracer.poll() is not None:
        return None
    run_batch(client, jobs)
    tracer.send_signal(signal.SIGINT)
    tracer.wait(10)
    return sum("sync(" in line for line in file.read_text().splitlines()) / jobs


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, of the children it has now (PostgreSQL's backends), and of those it has reaped."""
    ticks = _ticks(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        ticks += _ticks(int(child))
    return ticks / _TICK


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile, and its parent has counted it
    return sum(int(ticks) for ticks in fields[11:15])


def peak_memory_mb(pid: int) -> float:
    """The largest resident size that the process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    sys.exit(main())
