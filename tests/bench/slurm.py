"""`make bench-slurm`: jobs of `true` given to a Slurm cluster by sbatch and through Tidegate, by turns, as a ratio; and
how often Tidegate asks the cluster, with nothing to do and with a thousand jobs that wait in its queue.

The cluster is the tests' own, on this machine, and needs root and Debian's packages (infra/slurm/README.md). It shares
its cores with the stack and with who submits: only the ratio says much. Calls are counted by a program that is put
before every one of them.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from infra.slurm.cluster import Cluster
from infra.slurm.missing import why_no_cluster
from infra.slurm.options import Options
from shared.lifecycle.states import State
from tests.e2e.stacks import eventually
from tests.slurm import jobs
from tests.slurm.clusters import guarded
from tests.slurm.stacks import SlurmStack, running_stack

AIM: Final = 0.85
_OPEN: Final = ("QUEUED", "SUBMITTED", "PENDING", "RUNNING")
_AS_USUAL: Final = {"tick_seconds": "2.0", "settle_seconds": "60", "stuck_seconds": "300"}
_COUNTER: Final = """#!/bin/sh
for word; do
    case $word in
    sbatch | squeue | sacct | sinfo | scancel | scontrol) echo "$word" >>"$0.calls"; break ;;
    esac
done
exec "$@"
"""


def main() -> int:
    """Run it; 0 where every job succeeded."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=500, help="how many in each turn")
    asked.add_argument("--rounds", type=int, default=3, help="how many turns each has")
    asked.add_argument("--slots", type=int, default=64, help="how many jobs the cluster runs at once")
    asked.add_argument("--at-once", type=int, default=8, help="how many sbatch run at once, in both")
    asked.add_argument("--waiting", type=int, default=1000, help="how many jobs wait while calls are counted")
    asked.add_argument("--seconds", type=float, default=60, help="for so long calls are counted")
    options = asked.parse_args()
    if missing := why_no_cluster():
        print(missing, file=sys.stderr)
        return 1
    wrong = 0
    if options.rounds:
        with guarded(Options(cpus=options.slots)) as cluster:
            wrong = compare(cluster, options.jobs, options.rounds, options.at_once)
    if options.waiting:
        roomy = Options(cpus=options.waiting + 100, memory_mb=(options.waiting + 100) * 1000)
        with guarded(roomy) as cluster:
            count(cluster, options.waiting, options.seconds)
    return 1 if wrong else 0


def compare(cluster: Cluster, number: int, rounds: int, at_once: int) -> int:
    """Direct, Tidegate, direct, Tidegate …; how many jobs did not succeed."""
    print(f"{number} jobs of `true` a turn, {cluster.options.cpus} at once, {at_once} sbatch at once")
    rates: dict[str, list[float]] = {"sbatch": [], "tidegate": []}
    wrong = 0
    settings = _AS_USUAL | {"submissions_at_once": str(at_once)}
    with (
        tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder,
        running_stack(cluster, Path(folder), **settings) as stack,
    ):
        for turn in range(rounds):
            took, failed = {}, {}
            took["sbatch"], failed["sbatch"] = directly(cluster, number, at_once)
            took["tidegate"], failed["tidegate"] = through(stack, number)
            for who, seconds in took.items():
                rates[who].append(number / seconds)
                wrong += failed[who]
                print(
                    f"  round {turn + 1}: {who} {number / seconds:.1f} jobs/s, {failed[who]} did not succeed",
                    flush=True,
                )
    ratios = [ours / theirs for ours, theirs in zip(rates["tidegate"], rates["sbatch"], strict=True)]
    for who, some in rates.items():
        print(f"{who}: {statistics.median(some):.1f} jobs/s")
    print(f"ratio to sbatch: {statistics.median(ratios):.2f} ({', '.join(f'{one:.2f}' for one in ratios)}); aim {AIM}")
    return wrong


def directly(cluster: Cluster, number: int, at_once: int) -> tuple[float, int]:
    """From the first sbatch until the queue shows nobody any more: seconds, and how many did not complete."""
    started = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        ids = set(pool.map(lambda _: jobs.submit(cluster, "exec true"), range(number)))
    eventually(lambda: not _queued(cluster, "PENDING,CONFIGURING,RUNNING,COMPLETING"), "all to end", 60 + number)
    took = time.monotonic() - started
    done = set(cluster.run(["squeue", "--noheader", "--states=COMPLETED", "--format=%i"]).stdout.split())
    return took, len(ids - done)


def through(stack: SlurmStack, number: int) -> tuple[float, int]:
    """From the request until no job of it is open: seconds, and how many did not succeed."""
    started = time.monotonic()
    ids = _submitted(stack, number)
    eventually(lambda: not _is_open(stack, _OPEN), "all to end", 60 + number)
    took = time.monotonic() - started
    return took, sum(stack.client.job(job).state != State.SUCCEEDED for job in ids)


def count(cluster: Cluster, waiting: int, seconds: float) -> None:
    """How often the cluster is asked, by command."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        counter = Path(folder) / "counter"
        counter.write_text(_COUNTER)
        counter.chmod(0o755)
        settings = _AS_USUAL | {"prefix": f'["{counter}"]'}
        with running_stack(cluster, Path(folder), **settings) as stack:
            idle = _per_minute(counter.with_name("counter.calls"), seconds)
            print(f"calls a minute with no job: {_told(idle)}")
            stranger = jobs.submit(cluster, "sleep 10000", "--exclusive")
            jobs.wait_until(cluster, stranger, "RUNNING")
            _submitted(stack, waiting)
            eventually(lambda: _queued(cluster, "PENDING") >= waiting, "all to wait in the queue", 60 + waiting)
            eventually(lambda: not _is_open(stack, ("QUEUED", "SUBMITTED")), "all to be taken")
            busy = _per_minute(counter.with_name("counter.calls"), seconds)
            print(f"calls a minute with {waiting} jobs that wait in Slurm's queue: {_told(busy)}")


def _submitted(stack: SlurmStack, number: int) -> Sequence[str]:
    body = {"jobs": [{"spec": {"command": ["true"], "coretype": "cpu"}}] * number}
    ids: list[str] = stack.client.call("POST", "/v1/jobs/batch", json=body)["ids"]
    return ids


def _is_open(stack: SlurmStack, states: Sequence[str]) -> bool:
    return any(stack.client.jobs(state=state, limit=1).items for state in states)


def _queued(cluster: Cluster, states: str) -> int:
    return len(cluster.run(["squeue", "--noheader", f"--states={states}", "--format=%i"]).stdout.split())


def _per_minute(calls: Path, seconds: float) -> Counter[str]:
    before = Counter(calls.read_text().split())
    time.sleep(seconds)
    made = Counter(calls.read_text().split())
    made.subtract(before)
    return Counter({name: round(number * 60 / seconds) for name, number in made.items() if number})


def _told(calls: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(calls.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())
