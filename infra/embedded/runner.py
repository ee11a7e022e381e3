"""The local backend's runner host, seen from the stack: it and its jobs outlive the stack and are found again."""

import asyncio
import json
import signal
import time
from typing import Final

from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.processes import Identity
from shared.backends.local import layout, locks

RUNNER: Final = "runner"
"""Its name in the stack."""
GRACE_SECONDS: Final = 10.0


def running_host(home: Home) -> Identity | None:
    """The host of this home, of this stack or an earlier one; None where none runs."""
    try:
        host = Identity.from_json(json.loads((home.local / layout.HOST_RECORD).read_text())["host"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return None
    return host if host.alive() else None


def not_followed(home: Home, options: Options) -> list[str]:
    """Which of the options the host that runs does not follow, each with what it has instead."""
    try:
        record = json.loads((home.local / layout.HOST_RECORD).read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # it is only just starting
        record = {}
    asked = {"--virtual-gpus": (options.virtual_gpus, "gpus_total"), "--slots": (options.slots, "slots_total")}
    return [
        f"{flag} {wanted} (it has {record.get(key, 'not said yet')})"
        for flag, (wanted, key) in asked.items()
        if wanted is not None and wanted != record.get(key)
    ]


def what_waits_for_jobs(home: Home, options: Options) -> str | None:
    """Which options the host that runs does not follow: it keeps its own for as long as jobs run under it."""
    kept = not_followed(home, options)
    if not kept:
        return None
    return f"{running_jobs(home)} jobs of before still run, so their runner stays as it is, without {', '.join(kept)}"


def running_jobs(home: Home) -> int:
    """How many jobs run under this home's host, or under supervisors that it left: each holds a lock on its spec."""
    return len(_running_submissions(home))


async def end_jobs(home: Home) -> int:
    """Ask every running job to end, and kill those that do not; the stop is on record before the end is.

    Returns how many ended.
    """
    from shared.backends.local.client import LocalClient

    client = LocalClient(home.local)
    submissions = _running_submissions(home)
    for submission in submissions:
        await client.stop(submission, GRACE_SECONDS)
    await asyncio.gather(*(client.kill(submission) for submission in await _still_running(home, GRACE_SECONDS)))
    return len(set(submissions) - set(await _still_running(home, GRACE_SECONDS)))


async def _still_running(home: Home, seconds: float) -> list[str]:
    deadline = time.monotonic() + seconds
    while (submissions := _running_submissions(home)) and time.monotonic() < deadline:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.1)
    return submissions


def _running_submissions(home: Home) -> list[str]:
    ending = f".{layout.SPEC}.json"
    specs = (home.local / layout.OPEN).glob(f"*{ending}")
    return [spec.name.removesuffix(ending) for spec in specs if locks.is_held(str(spec))]


def end_idle_host(home: Home) -> None:
    """End the host unless jobs run: they keep it, and the next `up` finds both."""
    host = running_host(home)
    if host is not None and running_jobs(home) == 0:
        host.end(signal.SIGTERM, 10)
