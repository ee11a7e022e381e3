"""Several replicas read one consumer: what one of them does not finish another one does, and nothing is done twice."""

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

from nats.js import JetStreamContext

from shared.runtime.messages import Delivery
from shared.runtime.topology import CONSUMERS
from tests.integration.backends.local.harness import Failpoints
from tests.integration.runtime.guarded_service import handle
from tests.integration.runtime.stores import Stores, a_message, enqueue, eventually, running
from tests.patience import PATIENCE_SECONDS

PROGRAM = Path(__file__).parent / "guarded_service.py"
ROOT = Path(__file__).parents[3]


async def effects(stores: Stores) -> Counter[str]:
    """How often each message was reported."""
    return Counter(row["msg_id"] for row in await stores.rows("SELECT msg_id FROM gatekeeper.outbox"))


async def test_what_a_stopped_replica_held_goes_to_another_and_its_late_work_does_no_harm(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    """Case F6: stopped inside its handler, with a batch in hand and one fetched; later it finishes and acknowledges."""
    config = CONSUMERS["gatekeeper"].config()
    config.ack_wait = 1.0
    await admin_js.add_consumer("JOBS", config)
    api, other = stores.service("api"), stores.service("gatekeeper", replica="other")

    @other.consume("gatekeeper")
    async def quick(deliveries: list[Delivery]) -> None:
        await handle(other, deliveries)

    numbers = [f"{number}" for number in range(6)]
    environ = {**os.environ, **stores.environ("gatekeeper"), "TIDEGATE_REPLICA": "stopped", "PYTHONPATH": str(ROOT)}
    async with running(api):
        await enqueue(api, [a_message(number) for number in numbers])
        stopped = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(tmp_path), env=environ)
        try:

            async def holds_all() -> bool:
                pending = (await admin_js.consumer_info("JOBS", "gatekeeper")).num_ack_pending
                return (tmp_path / "begun").exists() and pending == len(numbers)

            await eventually(holds_all, "it to hold a batch and have fetched the next")
            stopped.send_signal(signal.SIGSTOP)
            async with running(other):

                async def all_done() -> bool:
                    return set(await effects(stores)) == set(numbers)

                await eventually(all_done, "the other replica to do all")
                (tmp_path / "go").touch()
                stopped.send_signal(signal.SIGCONT)

                async def done_late() -> bool:
                    done = tmp_path / "done"
                    return done.exists() and set(numbers) <= set(done.read_text().split())

                await eventually(done_late, "the stopped replica to do all of it once more")
                await enqueue(api, [a_message("after")])

                async def nothing_owed() -> bool:
                    info = await admin_js.consumer_info("JOBS", "gatekeeper")
                    return "after" in await effects(stores) and (info.num_ack_pending, info.num_pending) == (0, 0)

                await eventually(nothing_owed, "everything to be acknowledged")
        finally:
            stopped.kill()
            await stopped.wait()
    assert await effects(stores) == Counter([*numbers, "after"]), "each once"
    by = {row["name"]: row["owner"] for row in await stores.rows("SELECT name, owner FROM gatekeeper.leases")}
    assert {by[number] for number in numbers} == {"other"}


async def test_what_a_replica_committed_and_did_not_acknowledge_when_it_died_has_one_effect(
    stores: Stores, admin_js: JetStreamContext, tmp_path: Path
) -> None:
    """Case F6: killed between the commit and the acknowledgement, with the next batch fetched; another gets it all."""
    config = CONSUMERS["gatekeeper"].config()
    config.ack_wait = 1.0
    await admin_js.add_consumer("JOBS", config)
    api, other = stores.service("api"), stores.service("gatekeeper", replica="other")

    @other.consume("gatekeeper")
    async def quick(deliveries: list[Delivery]) -> None:
        await handle(other, deliveries)

    numbers = [f"{number}" for number in range(8)]
    orders = Failpoints(tmp_path / "failpoints")
    orders.arm("gatekeeper.ack.before")
    (tmp_path / "go").touch()
    environ = {**os.environ, **stores.environ("gatekeeper"), **orders.environment}
    environ |= {"TIDEGATE_REPLICA": "dying", "PYTHONPATH": str(ROOT)}
    async with running(api):
        await enqueue(api, [a_message(number) for number in numbers])
        dying = await asyncio.create_subprocess_exec(sys.executable, str(PROGRAM), str(tmp_path), env=environ)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await dying.wait() == -signal.SIGKILL
        committed = set(await effects(stores))
        assert 0 < len(committed) <= 3, "a batch of its own, and nothing of the next"
        async with running(other):

            async def nothing_owed() -> bool:
                info = await admin_js.consumer_info("JOBS", "gatekeeper")
                return set(await effects(stores)) == set(numbers) and (info.num_ack_pending, info.num_pending) == (0, 0)

            await eventually(nothing_owed, "everything to be done and acknowledged")
    assert await effects(stores) == Counter(numbers), "each once"
    by = {row["name"]: row["owner"] for row in await stores.rows("SELECT name, owner FROM gatekeeper.leases")}
    assert {name for name in numbers if by[name] == "dying"} == committed
