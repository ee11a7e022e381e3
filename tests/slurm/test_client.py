"""The client on a real cluster: what it submits is found again, and what the cluster says is read."""

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.slurm.cluster import Cluster
from shared.backends.slurm.answers import Done, NotDone, Refused, Submitted, Unclear
from shared.backends.slurm.client import SlurmClient, TimeOuts
from shared.backends.slurm.nodes import Capacity, Inventory
from shared.backends.slurm.orders import Order
from shared.backends.slurm.rows import AccountingRow, ExitStatus, Listed, NoAnswer, QueueRow
from tests.patience import PATIENCE_SECONDS

SINCE = datetime.now(UTC) - timedelta(hours=1)
ENDED = ("COMPLETED", "FAILED", "CANCELLED")


@pytest.fixture
def client(cluster: Cluster) -> SlurmClient:
    return SlurmClient(environment=cluster.environment)


def an_order(script: str, folder: Path, **more: Any) -> Order:
    name = f"tg.j{secrets.token_hex(4)}.a1.s1"
    output = str(folder / "out")
    order = Order(name, f"tidegate/1 {secrets.token_hex(4)}", f"#!/bin/sh\n{script}\n", str(folder), output, output)
    return replace(order, **more)


async def submitted(client: SlurmClient, order: Order) -> str:
    answer = await client.submit(order)
    assert isinstance(answer, Submitted), answer
    return answer.id


async def queued(client: SlurmClient, order: Order, when: Callable[[QueueRow], object]) -> QueueRow:
    """The job's row once it is as it should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        listed = await client.queue([order.name])
        assert isinstance(listed, Listed), listed
        if listed.rows and when(listed.rows[0]):
            return listed.rows[0]
        assert time.monotonic() < deadline, f"the queue says {listed}"
        await asyncio.sleep(0.1)


async def accounted(
    client: SlurmClient, order: Order, when: Callable[[list[AccountingRow]], object]
) -> list[AccountingRow]:
    """The job's rows in accounting once they are as they should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        listed = await client.accounting(SINCE, names=[order.name])
        assert isinstance(listed, Listed), listed
        if when(list(listed.rows)):
            return list(listed.rows)
        assert time.monotonic() < deadline, f"accounting says {listed}"
        await asyncio.sleep(0.2)


async def test_a_job_is_found_by_its_name_with_all_that_became_of_it(client: SlurmClient, tmp_path: Path) -> None:
    order = an_order("sleep 1; exit 3", tmp_path, gres="gpu:2", time_limit_seconds=61, memory_bytes=50 << 20)
    id = await submitted(client, order)
    row = await queued(client, order, lambda row: row.state in ENDED)
    assert (row.id, row.comment, row.state, row.reason) == (id, order.comment, "FAILED", "NonZeroExitCode")
    assert (row.exit, row.restarts, row.user) == (ExitStatus(3, 0), 0, "root")
    assert row.start
    assert row.end
    assert row.run_time == row.end - row.start
    [ended] = await accounted(client, order, lambda rows: rows and rows[0].state in ENDED and rows[0].comment)
    assert (ended.id, ended.comment, ended.state, ended.exit) == (id, order.comment, "FAILED", ExitStatus(3, 0))
    assert (ended.start, ended.end, ended.elapsed) == (row.start, row.end, row.run_time)
    assert "gres/gpu=2" in (ended.tres or "").split(",")


async def test_a_job_gets_the_script_the_folder_and_little_else(
    client: SlurmClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "50%j of $HOME"
    folder.mkdir()
    monkeypatch.setenv("SBATCH_HOLD", "1")
    monkeypatch.setenv("TIDEGATE_SECRET", "no")
    order = an_order("pwd; env; kill -KILL $$", folder)
    await submitted(client, order)
    row = await queued(client, order, lambda row: row.state in ENDED)
    assert (row.state, row.exit) == ("FAILED", ExitStatus(0, 9))
    said = (folder / "out").read_text().splitlines()
    assert said[0] == str(folder)
    assert not [line for line in said if line.startswith(("TIDEGATE_", "SBATCH_", "SLURM_TIME_FORMAT"))]


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"partition": "nosuch"}, "partition"),
        ({"gres": "gpu:99"}, "size"),
        ({"gres": "tpu:1"}, "gres"),
        ({"constraint": "nofeat"}, "constraint"),
        ({"signal": "LOUD@1"}, "signal"),
        ({"script": "true\n"}, "script"),
        ({"script": "#!/bin/sh\r\n"}, "script"),
        ({"script": ""}, "script"),
    ],
)
async def test_what_the_cluster_refuses_is_refused(
    client: SlurmClient, tmp_path: Path, more: dict[str, Any], word: str
) -> None:
    order = replace(an_order("true", tmp_path), **more)
    answer = await client.submit(order)
    assert isinstance(answer, Refused), answer
    assert answer.word == word
    listed = await client.queue([order.name])
    assert isinstance(listed, Listed)
    # The controller keeps one that no node could ever run, as a job that failed.
    assert [(row.state, row.reason) for row in listed.rows] in ([], [("FAILED", "BadConstraints")])


async def test_other_peoples_jobs_cost_nothing_and_forge_nothing(
    cluster: Cluster, client: SlurmClient, tmp_path: Path
) -> None:
    order = an_order("true", tmp_path, hold=True)
    id = await submitted(client, order)
    forged = f"x|{id}|COMPLETED\n{id}|{order.name}|{order.comment}|root|COMPLETED"
    hold = ["sbatch", "--parsable", "--hold", "--output=/dev/null"]
    array = cluster.run([*hold, f"--job-name={forged}", "--array=1-40%2"], stdin="#!/bin/sh\n").stdout.strip()
    as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    stranger = cluster.run([*as_nobody, *hold, f"--job-name={order.name}"], stdin="#!/bin/sh\n").stdout.strip()
    listed = await client.queue()
    assert isinstance(listed, Listed)
    found = {row.id: (row.name, row.state, row.reason) for row in listed.rows if row.state not in ENDED}
    assert found == {
        id: (order.name, "PENDING", "JobHeldUser"),
        f"{array}_[1-40%2]": (forged, "PENDING", "JobHeldUser"),
    }
    everybody = await SlurmClient(environment=cluster.environment, user="nobody,root").queue()
    assert isinstance(everybody, Listed)
    assert {row.id: row.user for row in everybody.rows if row.state not in ENDED} == {
        **dict.fromkeys(found, "root"),
        stranger: "nobody",
    }
    assert not everybody.skipped


async def test_only_the_job_that_still_has_the_name_is_cancelled(client: SlurmClient, tmp_path: Path) -> None:
    order = an_order("sleep 600", tmp_path)
    id = await submitted(client, order)
    await queued(client, order, lambda row: row.state == "RUNNING")
    await client.cancel([id], name="another")
    assert (await queued(client, order, lambda row: True)).state == "RUNNING"
    assert await client.cancel([id], name=order.name) == Done()
    await queued(client, order, lambda row: row.state == "CANCELLED")
    [row] = await accounted(client, order, lambda rows: rows and rows[0].state == "CANCELLED")
    assert row.cancelled_by == os.getuid()
    assert await client.cancel([id, "999999"]) == Done()


async def test_a_signal_reaches_the_batch_script(client: SlurmClient, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    order = an_order(f"trap 'exit 7' USR1; >{ready}; while :; do sleep 0.1; done", tmp_path)
    id = await submitted(client, order)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not await asyncio.to_thread(ready.exists):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    assert await client.cancel([id], signal="USR1", batch=True) == Done()
    assert (await queued(client, order, lambda row: row.state in ENDED)).exit == ExitStatus(7, 0)


async def test_a_requeued_job_has_a_row_for_each_segment(client: SlurmClient, tmp_path: Path) -> None:
    order, fixed = an_order("sleep 600", tmp_path, requeue=True), an_order("sleep 600", tmp_path)
    id, other = await submitted(client, order), await submitted(client, fixed)
    for each in (order, fixed):
        await queued(client, each, lambda row: row.state == "RUNNING")
    assert await client.requeue(id) == Done()
    refused = await client.requeue(other)
    assert isinstance(refused, NotDone)
    assert refused.word == "disabled"
    row = await queued(client, order, lambda row: row.restarts == 1 and row.state == "PENDING")
    assert (row.id, row.exit) == (id, ExitStatus(0, 0))
    rows = await accounted(client, order, lambda rows: len(rows) == 2)
    assert {row.id for row in rows} == {id}
    assert "REQUEUED" in {row.state for row in rows}


async def test_a_suspended_job_says_since_when_and_how_long_before(
    cluster: Cluster, client: SlurmClient, tmp_path: Path
) -> None:
    order = an_order("sleep 600", tmp_path, time_limit_seconds=3600)
    id = await submitted(client, order)
    running = await queued(client, order, lambda row: row.state == "RUNNING")
    assert (running.suspended, running.suspended_since) == (timedelta(0), None)
    for before in (False, True):
        cluster.run(["scontrol", "suspend", id])
        row = await queued(client, order, lambda row: row.state == "SUSPENDED")
        shown = dict(
            word.split("=", 1) for word in cluster.run(["scontrol", "show", "job", id]).stdout.split() if "=" in word
        )
        assert row.suspended_since == datetime.fromisoformat(shown["SuspendTime"]).astimezone(UTC)
        assert row.run_time == timedelta(seconds=int(shown["SecsPreSuspend"]))
        assert row.start
        assert row.suspended == row.suspended_since - row.start - (row.run_time or timedelta(0))
        assert bool(row.suspended) == before
        await asyncio.sleep(max(0.0, row.suspended_since.timestamp() + 2 - time.time()))
        cluster.run(["scontrol", "resume", id])
        again = await queued(client, order, lambda row: row.state == "RUNNING")
        assert again.suspended is not None
        assert again.suspended >= row.suspended + timedelta(seconds=1)


async def test_capacity_is_what_is_there_less_what_nobody_gets(
    cluster: Cluster, client: SlurmClient, tmp_path: Path
) -> None:
    async def gpus() -> Capacity:
        listed = await client.capacity()
        assert isinstance(listed, Listed), listed
        return next(each for each in listed.rows if each.gres == "gpu")

    partition, total = (await gpus()).partition, cluster.options.gpus
    assert await gpus() == Capacity(partition, "gpu", total, 0, 0)
    order = an_order("sleep 600", tmp_path, gres="gpu:1")
    await submitted(client, order)
    await queued(client, order, lambda row: row.state == "RUNNING")
    assert await gpus() == Capacity(partition, "gpu", total, 1, 0)
    cluster.update_node("drain")
    assert await gpus() == Capacity(partition, "gpu", total, 1, total - 1)
    inventory = await client.nodes()
    assert isinstance(inventory, Inventory)
    assert inventory.nodes[0].trouble == f"{cluster.node} is drained: jobs on it end, no new one starts (test)"


async def test_the_cluster_is_named_where_there_are_several(cluster: Cluster, tmp_path: Path) -> None:
    client = SlurmClient(environment=cluster.environment, cluster=cluster.options.name)
    order = an_order("true", tmp_path, hold=True)
    answer = await client.submit(order)
    assert isinstance(answer, Submitted)
    assert answer.cluster == cluster.options.name
    assert (await queued(client, order, lambda row: True)).id == answer.id
    assert isinstance(await client.accounting(SINCE), Listed)
    assert isinstance(await client.capacity(), Listed)
    assert await client.ping() == Done()
    assert await client.cancel([answer.id], name=order.name) == Done()


async def test_a_controller_that_hangs_gives_no_answer(cluster: Cluster, tmp_path: Path) -> None:
    client = SlurmClient(environment=cluster.environment, time_outs=TimeOuts(1, 1, 1, 1))
    order = an_order("true", tmp_path)
    cluster.freeze("slurmctld")
    answers = await asyncio.gather(
        client.submit(order), client.queue(), client.ping(), client.capacity(), client.cancel(["1"])
    )
    for answer, kind in zip(answers, (Unclear, NoAnswer, NoAnswer, NoAnswer, NotDone), strict=True):
        assert isinstance(answer, kind), answer


async def test_accounting_that_is_down_is_no_empty_accounting(cluster: Cluster, client: SlurmClient) -> None:
    cluster.stop_daemon("slurmdbd")
    answer = await client.accounting(SINCE)
    assert isinstance(answer, NoAnswer)
    assert "Connection refused" in answer.why
    assert isinstance(await client.queue(), Listed)
