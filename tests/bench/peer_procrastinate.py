"""Procrastinate with a process for each job: `python -m tests.bench.peer_procrastinate URL`, a worker until SIGTERM."""

import logging
import sys
from typing import Any

import procrastinate
import uvloop

from tests.bench.running import CONCURRENCY, RESULTS, STORE, ExitNonzero, exit_code_of

TASK = "run"
OPEN = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


def app_on(url: str) -> procrastinate.App:
    """The application with its one task."""
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=16))

    async def run(number: int, argv: list[str]) -> None:
        code = await exit_code_of(argv)
        await app.connector.execute_query_async(STORE.format("%(number)s", "%(code)s"), number=number, code=code)
        if code != 0:
            raise ExitNonzero(code)

    app.task(name=TASK)(run)
    return app


async def install(url: str) -> None:
    """Its own tables, and ours for the exit codes."""
    async with app_on(url).open_async() as app:
        await app.schema_manager.apply_schema_async()
        await app.connector.execute_query_async(RESULTS)


async def enqueue(url: str, jobs: list[tuple[int, list[str]]]) -> None:
    """All in one request."""
    given: list[Any] = [{"number": number, "argv": argv} for number, argv in jobs]
    async with app_on(url).open_async() as app:
        await app.tasks[TASK].batch_defer_async(*given)


async def work(url: str) -> None:
    """Until SIGTERM."""
    async with app_on(url).open_async() as app:
        await app.run_worker_async(concurrency=CONCURRENCY, fetch_job_polling_interval=0.5)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # it would print a traceback for each job that fails
    uvloop.run(work(sys.argv[1]))
