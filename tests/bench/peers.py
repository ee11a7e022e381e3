"""`make bench-peers`: the same jobs in tidegate and in two queues on PostgreSQL that start a process for each job.

In one run, by turns, on servers of the same settings: every commit is on disk before it is answered. One job in a
hundred exits 3, and every exit code is stored and checked. What is compared are ratios within the run, since nothing
else means much on a machine that others use too; and what each of the three does for a job, and what not.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.abilities import TABLE
from tests.bench.contestants import Contestant, Jobs, Queue, Queues, Tidegate, Turn
from tests.bench.running import CONCURRENCY
from tests.bench.throughput import spawn_limit

FAILING: Final = ("sh", "-c", "exit 3")


def main() -> int:
    """Run it; 0 where every job of everybody ended with the exit code that it should."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--jobs", type=int, default=1000, help="how many in each turn")
    asked.add_argument("--rounds", type=int, default=3, help="how many turns each has")
    asked.add_argument("--slots", type=int, default=128, help="how many jobs tidegate may run at once")
    asked.add_argument("--workers", type=int, default=1, help="worker processes of each of the other queues")
    options = asked.parse_args()
    jobs: Jobs = [(n, FAILING if n % 100 == 99 else ("true",)) for n in range(options.jobs)]
    spawned = spawn_limit(300)
    print(f"limit: this machine starts and reaps /bin/true {spawned:.0f} times a second, alone, from one process")
    print(f"{options.jobs} jobs a turn, {sum(argv == FAILING for _, argv in jobs)} of them exit 3")
    print(f"tidegate: {options.slots} jobs at once; the others: {options.workers} x {CONCURRENCY} jobs at once")
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder, Queues(Path(folder) / "queues") as server:
        ours = Tidegate(Path(folder) / "tidegate", options.slots)
        others = [
            Queue("pgqueuer", "tests.bench.peer_pgqueuer", server, options.workers),
            Queue("procrastinate", "tests.bench.peer_procrastinate", server, options.workers),
        ]
        turns = take_turns([ours, *others], jobs, options.rounds)
        assert all(other.settings() == ours.settings() for other in others), (
            "their PostgreSQL is not as durable as ours"
        )
        print(", ".join(f"{name} {value}" for name, value in ours.settings().items()) + " for all")
    report(turns, ours.name)
    print(TABLE)
    return 0 if all(turn.wrong == 0 for some in turns.values() for turn in some) else 1


def take_turns(contestants: Sequence[Contestant], jobs: Jobs, rounds: int) -> dict[str, list[Turn]]:
    """A B C A B C …"""
    turns: dict[str, list[Turn]] = {one.name: [] for one in contestants}
    for number in range(rounds):
        for one in contestants:
            turn = one.turn(jobs)
            turns[one.name].append(turn)
            print(f"  round {number + 1}: {one.name} {turn.rate:.0f} jobs/s, {turn.wrong} wrong exit codes", flush=True)
    return turns


def report(turns: Mapping[str, Sequence[Turn]], ours: str) -> None:
    """Medians, and the ratios of ours to each of the others within each round.

    CPU a job is what remains telling on a machine that others load: they take time away, and little of that.
    """
    print(
        "\n                 jobs/s   transactions/job   CPU ms/job   jobs/s of ours to it, by rounds       CPU of ours"
    )
    for name, some in turns.items():
        rate, transactions, cpu = (
            statistics.median(values)
            for values in zip(
                *((t.rate, t.transactions / t.jobs, t.cpu_seconds / t.jobs * 1000) for t in some), strict=True
            )
        )
        line = f"  {name:<14} {rate:7.0f} {transactions:18.2f} {cpu:12.1f}"
        if name != ours:
            rates = [mine.rate / its.rate for mine, its in zip(turns[ours], some, strict=True)]
            spent = [mine.cpu_seconds / its.cpu_seconds for mine, its in zip(turns[ours], some, strict=True)]
            by_rounds = f"{statistics.median(rates):.2f} ({', '.join(f'{ratio:.2f}' for ratio in rates)})"
            line += f"   {by_rounds:<35}   {statistics.median(spent):.2f} times its"
        print(line)


if __name__ == "__main__":
    sys.exit(main())
