"""What the workers of other queues do for one job here: start its command, wait for it, store its exit code."""

import asyncio
from typing import Final

CONCURRENCY: Final = 32
"""Jobs at once in one worker; more is not faster on two cores."""
RESULTS: Final = "CREATE TABLE results (number bigint PRIMARY KEY, code integer NOT NULL, at timestamptz DEFAULT now())"
STORE: Final = "INSERT INTO results (number, code) VALUES ({}, {})"


class ExitNonzero(Exception):
    """So that the queue sees a failed job, as it would be used."""


async def exit_code_of(argv: list[str]) -> int:
    """Run it as a process of its own. Its output goes nowhere: neither queue keeps logs."""
    nowhere = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*argv, stdin=nowhere, stdout=nowhere, stderr=nowhere)
    return await process.wait()
