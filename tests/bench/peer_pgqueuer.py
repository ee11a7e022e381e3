"""pgqueuer running every job as a process: `python -m tests.bench.peer_pgqueuer URL`, a worker until SIGTERM."""

import json
import logging
import signal
import sys
from asyncio import get_running_loop

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from tests.bench.running import CONCURRENCY, RESULTS, STORE, ExitNonzero, exit_code_of

TASK = "run"
OPEN = "SELECT count(*) FROM pgqueuer"
_BATCH = CONCURRENCY // 2


async def install(url: str) -> None:
    """Its own tables (all of them logged, which is its default), and ours for the exit codes."""
    connection = await asyncpg.connect(url)
    await Queries(AsyncpgDriver(connection)).install()
    await connection.execute(RESULTS)
    await connection.close()


async def enqueue(url: str, jobs: list[tuple[int, list[str]]]) -> None:
    """All in one request."""
    connection = await asyncpg.connect(url)
    payloads: list[bytes | None] = [json.dumps(job).encode() for job in jobs]
    await Queries(AsyncpgDriver(connection)).enqueue([TASK] * len(jobs), payloads, [0] * len(jobs))
    await connection.close()


async def work(url: str) -> None:
    """Until SIGTERM."""
    async with asyncpg.create_pool(url, min_size=4, max_size=16) as pool:
        queue = PgQueuer.from_asyncpg_pool(pool)

        async def run(job: Job) -> None:
            number, argv = json.loads(job.payload or b"")
            code = await exit_code_of(argv)
            await pool.execute(STORE.format("$1", "$2"), number, code)
            if code != 0:
                raise ExitNonzero(code)

        queue.entrypoint(TASK)(run)
        get_running_loop().add_signal_handler(signal.SIGTERM, queue.shutdown.set)
        await queue.run(batch_size=_BATCH, max_concurrent_tasks=CONCURRENCY)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # it would print a traceback for each job that fails
    uvloop.run(work(sys.argv[1]))
