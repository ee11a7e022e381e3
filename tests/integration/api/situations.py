"""Jobs brought to wherever a job can be: by what services tell of them, and by what people ask. Many at once, so that
each can be asked something else."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from services.api.domain import read_fact, take_command
from services.api.facts import Facts
from shared.contracts.facts import encode_fact
from shared.lifecycle import inputs as i
from shared.lifecycle.facts import FACT
from tests.integration.api.conftest import SENDER_OF, RunningApi
from tests.scenarios.telling import FACTS

_AT: Final = datetime(2026, 11, 30, 9, tzinfo=UTC)
_SEGMENT: Final = {"submission": "s1", "created_at": _AT}
_ENDED: Final = {"started_at": _AT, "ended_at": _AT, "raw_state": "exited"}
_MORE: Final[Mapping[str, Mapping[str, Any]]] = {
    "is told to pause": {"kind": "policy_pause", "policy": "idle", "reason": "nobody used it"},
    "is lost": {"kind": "lost", "last_seen_at": _AT},
    "has no outputs": {"kind": "staging_sealed", "staged": True, "outcome": "none"},
    "was never staged": {"kind": "staging_sealed", "staged": False, "outcome": "none"},
    "has lost its outputs": {"kind": "staging_sealed", "staged": True, "outcome": "failed", "message": "disk full"},
}


@dataclass
class Play:
    """What services and people do with jobs of acme, in bulk."""

    api: RunningApi
    client: httpx.AsyncClient
    _told: int = field(default=0)

    async def submitted(self, count: int, *, snapshot: str | None = None) -> list[str]:
        """So many jobs."""
        spec = {"command": ["true"], "gpus": 1, "outputs": ["model/**"], "snapshot": snapshot}
        answer = await self.client.post("/v1/jobs/batch", json={"jobs": [{"spec": spec}] * count})
        assert answer.status_code == 201, answer.text
        ids: list[str] = answer.json()["ids"]
        return ids

    async def steps(self, count: int, *names: str) -> list[list[str]]:
        """So many pipelines; per step the jobs."""
        body = {"steps": [{"name": name, "spec": {"command": ["true"], "gpus": 1}} for name in names]}
        made = [await self.client.post("/v1/pipelines", json=body) for _ in range(count)]
        return [[answer.json()["steps"][index]["job"] for answer in made] for index in range(len(names))]

    async def upload(self, content: bytes) -> str:
        """A snapshot's digest, once it is stored."""
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert (await self.client.put(f"/v1/snapshots/{digest}", content=content)).is_success
        return digest

    async def lose_the_snapshot(self, digest: str) -> None:
        """As where a blob store was emptied, and the operator says so."""
        await self.api.service.db.execute("DELETE FROM snapshots WHERE digest = $1", digest)

    async def tell(self, jobs: Sequence[str], *lines: str, attempt: int = 1) -> None:
        """The services tell this of each job."""
        reported = []
        for line in lines:
            for job in jobs:
                self._told += 1
                fields = dict({**FACTS, **_MORE}[line])
                base = {"job": job, "tenant": "acme", "attempt": attempt, "at": _AT, "source": "a test"}
                if fields["kind"] in ("accepted", "seen_running", "exited"):
                    fields["segment"] = _SEGMENT | {"submission": f"s{attempt}"}
                if fields["kind"] == "exited":
                    fields |= _ENDED
                fact = FACT.validate_python({**base, "version": {"n": self._told}, **fields})
                wire = encode_fact(SENDER_OF[fields["kind"]], fact)
                reported.append(read_fact(wire.subject, wire.body))
        await Facts(self.api.service, self.api.api.store).take(reported)

    async def ask(self, jobs: Sequence[str], kind: type[i.CommandBase], **fields: Any) -> None:
        """Somebody asks this of each job, and it is done."""
        now = self.api.service.clock.now()
        command: Any = kind(actor="rin", at=now, **fields)
        async with self.api.api.store.transaction() as tx:
            records = await tx.lock(jobs)
            changes = [take_command(record, command, now)[0] for record in records.values()]
            await tx.apply([change for change in changes if change is not None])

    async def forget(self, jobs: Sequence[str]) -> None:
        """Delete each, as a version did that let the steps of a pipeline go in any order."""
        now = self.api.service.clock.now()
        async with self.api.api.store.transaction() as tx:
            for record in (await tx.lock(jobs)).values():
                change, _ = take_command(record, i.Delete(actor="rin", at=now), now)
                assert change is not None
                await tx.delete(change)


RUNS: Final = ("is admitted", "is checked", "is staged", "is accepted", "is seen running")
LET_GO: Final = ("frees its GPUs", "is sealed by the launcher", "has its outputs back")
KEEPS_ITS_GPUS: Final = LET_GO[1:]

Made = Callable[[Play, int], Awaitable[list[str]]]
SITUATIONS: Final[dict[str, Made]] = {}
"""By the words that say where the jobs are: makes so many of them."""


def situation(words: str) -> Callable[[Made], Made]:
    """Name one."""

    def named(made: Made) -> Made:
        SITUATIONS[words] = made
        return made

    return named


def told(words: str, *lines: str) -> None:
    """A situation that services' words alone lead to."""

    @situation(words)
    async def made(play: Play, count: int) -> list[str]:
        jobs = await play.submitted(count)
        await play.tell(jobs, *lines)
        return jobs


def asked(words: str, lines: Sequence[str], kind: type[i.CommandBase], then: Sequence[str] = (), **fields: Any) -> None:
    """A situation in which somebody asks for something after some words, and before others."""

    @situation(words)
    async def made(play: Play, count: int) -> list[str]:
        jobs = await play.submitted(count)
        if lines:
            await play.tell(jobs, *lines)
        await play.ask(jobs, kind, **fields)
        if then:
            await play.tell(jobs, *then)
        return jobs


told("waits at a gate", "is held by quota")
asked("is held by a user", (), i.Hold, reason="not yet")
asked("is held by an admin", (), i.Hold, reason="audit", by_admin=True)
told("is being checked and staged", "is admitted")
told("waits at the backend", *RUNS[:4])
told("runs", *RUNS)
told("has exited, its outputs are being copied", *RUNS, "exits 0")
asked("is being paused", RUNS, i.Pause)
asked("is being paused by an admin", RUNS, i.Pause, by_admin=True, reason="maintenance")
asked("is being stopped", RUNS, i.Stop)
asked("was paused while it waited", (), i.Pause)
asked("was paused while it ran", RUNS, i.Pause, ("dies of the stop", *LET_GO))
asked("was paused, and its GPUs are not freed", RUNS, i.Pause, ("dies of the stop", *KEEPS_ITS_GPUS))
told("was paused by a policy", "is told to pause")
asked("was paused by an admin", (), i.Pause, by_admin=True, reason="maintenance")
told("succeeded", *RUNS, "exits 0", *LET_GO)
told("succeeded, and its GPUs are not freed", *RUNS, "exits 0", *KEEPS_ITS_GPUS)
told("failed", *RUNS, "exits 3", *LET_GO)
told("failed, and its GPUs are not freed", *RUNS, "exits 3", *KEEPS_ITS_GPUS)
told("is lost, and nobody proved that it is gone", "is seen running", "is lost", "was never staged")
told("is lost, and proved to be gone", *RUNS, "is lost", *LET_GO)
asked("is stopped", (), i.Stop)


@situation("failed, and is retried")
async def _retried(play: Play, count: int) -> list[str]:
    jobs = await SITUATIONS["failed"](play, count)
    await play.ask(jobs, i.Retry)
    return jobs


@situation("failed, and its retries by hand are spent")
async def _spent(play: Play, count: int) -> list[str]:
    jobs = await _retried(play, count)
    await play.tell(jobs, *RUNS, "exits 3", *LET_GO, attempt=2)
    return jobs


@situation("failed, and its snapshot is gone")
async def _failed_without(play: Play, count: int) -> list[str]:
    digest = await play.upload(b"one")
    jobs = await play.submitted(count, snapshot=digest)
    await play.tell(jobs, *RUNS, "exits 3", *LET_GO)
    await play.lose_the_snapshot(digest)
    return jobs


@situation("is paused, and its snapshot is gone")
async def _paused_without(play: Play, count: int) -> list[str]:
    digest = await play.upload(b"two")
    jobs = await play.submitted(count, snapshot=digest)
    await play.ask(jobs, i.Pause)
    await play.lose_the_snapshot(digest)
    return jobs


@situation("failed at copying back, which is tried again")
async def _recopied(play: Play, count: int) -> list[str]:
    jobs = await play.submitted(count)
    await play.tell(jobs, *RUNS, "exits 0", *LET_GO[:2], "has lost its outputs")
    await play.ask(jobs, i.Recopy)
    return jobs


@situation("succeeded, and a later step has not ended")
async def _first_step(play: Play, count: int) -> list[str]:
    first, _ = await play.steps(count, "train", "eval")
    await play.tell(first, *RUNS, "exits 0", *LET_GO)
    return first


@situation("succeeded, and a later step did not")
async def _needed(play: Play, count: int) -> list[str]:
    first, second = await play.steps(count, "train", "eval")
    await play.tell(first, *RUNS, "exits 0", *LET_GO)
    await play.tell(second, *RUNS, "exits 3", *LET_GO)
    return first


@situation("is out of reach, since a step before it failed")
async def _out_of_reach(play: Play, count: int) -> list[str]:
    first, second = await play.steps(count, "train", "eval")
    await play.tell(first, *RUNS, "exits 3", *LET_GO)
    return second


@situation("failed, and a step before it was deleted")
async def _after_a_deleted_one(play: Play, count: int) -> list[str]:
    first, second = await play.steps(count, "train", "eval")
    await play.tell(first, *RUNS, "exits 0", *LET_GO)
    await play.tell(second, *RUNS, "exits 3", *LET_GO)
    await play.forget(first)
    return second


@situation("was deleted")
async def _deleted(play: Play, count: int) -> list[str]:
    jobs = await SITUATIONS["is stopped"](play, count)
    for job in jobs:
        assert (await play.client.delete(f"/v1/jobs/{job}")).is_success
    return jobs
