"""The gatekeeper as a deployment runs it: real stores, its own logins, replicas, crashes."""

import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from shared.contracts.ids import new_id
from shared.contracts.queries import (
    Capacity,
    FitAnswer,
    FitAsked,
    PositionsAnswer,
    PositionsAsked,
    Quota,
    QuotaAnswer,
    QuotaAsked,
    QuotaSet,
)
from shared.contracts.subjects import cluster_subject
from shared.lifecycle.advance import create
from shared.lifecycle.facts import FACT, AnyFact
from shared.lifecycle.record import JobRecord, Resources
from tests.databases import FreshDatabase
from tests.integration.gatekeeper.processes import Deployment, eventually
from tests.servers import NatsServer


@pytest.fixture
async def deployment(
    service_database: FreshDatabase, nats_url: str, nats_server: NatsServer
) -> AsyncIterator[Deployment]:
    made = await Deployment.of(await service_database("gatekeeper"), nats_server, "facts.v1.gatekeeper.>")
    yield made
    await made.close()


def a_job(gpus: int = 0, tenant: str = "acme") -> JobRecord:
    now = datetime.now(UTC)
    return create(
        id=new_id("j", now),
        tenant=tenant,
        user="rin",
        name="job",
        spec_digest="sha256:" + "0" * 64,
        resources=Resources(gpus=gpus),
        has_outputs=False,
        now=now,
    )


async def cluster(deployment: Deployment, gpus: int = 8, slots: int = 64) -> None:
    report = Capacity(cluster="local", coretype="local", gpus=gpus, slots=slots, at=datetime.now(UTC))
    await deployment.streams.publish(cluster_subject("local", "capacity"), report.model_dump_json().encode())


async def ready(deployment: Deployment) -> None:
    """Wait until the gatekeeper has read the cluster's report."""
    asked = FitAsked(tenant="acme", resources=(Resources(coretype="none such"),)).model_dump_json().encode()

    async def known() -> bool:
        return FitAnswer.model_validate_json(await deployment.ask("fits", asked)).why_not != (None,)

    await eventually(known, "the gatekeeper to know its cluster")


async def told(deployment: Deployment, count: int) -> dict[str, AnyFact]:
    """The facts by job, once so many jobs were told something; the last one of each."""

    async def enough() -> bool:
        return len({FACT.validate_json(body).job for body in deployment.bodies}) >= count

    await eventually(enough, f"facts about {count} jobs")
    return {fact.job: fact for fact in map(FACT.validate_json, deployment.bodies)}


async def used(deployment: Deployment) -> Quota:
    asked = QuotaAsked(tenant="acme").model_dump_json().encode()
    return QuotaAnswer.model_validate_json(await deployment.ask("quota_get", asked)).quotas[0]


async def test_admits_and_holds_what_comes_and_ends_cleanly(deployment: Deployment) -> None:
    await cluster(deployment, slots=2)
    process = deployment.start()
    await ready(deployment)
    jobs = [a_job() for _ in range(3)]
    await deployment.says(*jobs)
    facts = await told(deployment, 3)
    assert sorted(fact.kind for fact in facts.values()) == ["admitted", "admitted", "held"]
    assert (await used(deployment)).slots_used == 2
    assert await deployment.end(process) == 0


async def test_answers_what_others_ask(deployment: Deployment) -> None:
    await cluster(deployment, slots=1)
    deployment.start()
    await ready(deployment)
    asked = QuotaSet(tenant="acme", gpus=4, fields=("gpus",), actor="root").model_dump_json().encode()
    answer = QuotaAnswer.model_validate_json(await deployment.ask("quota_set", asked))
    assert (answer.quotas[0].gpus, answer.quotas[0].changed_by) == (4, "root")
    running = a_job()
    await deployment.says(running)
    await told(deployment, 1)
    waiting = [a_job(), a_job(gpus=2)]
    await deployment.says(*waiting)
    await told(deployment, 3)
    positions = PositionsAsked(jobs=(running.id, *(job.id for job in waiting))).model_dump_json().encode()
    line = PositionsAnswer.model_validate_json(await deployment.ask("positions", positions))
    assert line.positions == {waiting[0].id: 1, waiting[1].id: 2}
    assert [gate.name for gate in line.gates[waiting[1].id]] == ["capacity"]
    fits = FitAsked(tenant="acme", resources=(Resources(gpus=4), Resources(gpus=5), Resources(coretype="h100")))
    assert FitAnswer.model_validate_json(await deployment.ask("fits", fits.model_dump_json().encode())).why_not == (
        None,
        "needs 5 GPUs; tenant acme may use 4 at most",
        "no cluster offers coretype h100; offered: local",
    )


async def test_a_killed_gatekeeper_admits_each_job_once(deployment: Deployment) -> None:
    await cluster(deployment, slots=1000)
    jobs = [a_job() for _ in range(100)]
    process = deployment.start()
    await ready(deployment)
    await deployment.says(*jobs[:50])
    await told(deployment, 1)
    await deployment.end(process, signal.SIGKILL)
    await deployment.says(*jobs[50:])
    await cluster(deployment, slots=1000)
    deployment.start()
    facts = await told(deployment, 100)
    assert {fact.kind for fact in facts.values()} == {"admitted"}
    versions = {(fact.job, fact.version.n) for fact in map(FACT.validate_json, deployment.bodies)}
    assert len(versions) == 100
    assert (await used(deployment)).slots_used == 100


async def test_two_replicas_share_the_work_and_exceed_nothing(deployment: Deployment) -> None:
    await cluster(deployment, slots=50)
    deployment.start()
    deployment.start()
    await ready(deployment)
    jobs = [a_job() for _ in range(100)]
    await deployment.says(*jobs)
    facts = await told(deployment, 100)
    kinds = [fact.kind for fact in facts.values()]
    assert (kinds.count("admitted"), kinds.count("held")) == (50, 50)
    assert (await used(deployment)).slots_used == 50
