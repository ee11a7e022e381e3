"""A server of a running stack is killed, or comes back with less than it had: it is started again by itself."""

import signal
from pathlib import Path

import nats
import pytest

from infra.embedded.home import Home
from tests.e2e.stacks import Stack, eventually
from tests.integration.embedded.conftest import rows_of


@pytest.mark.parametrize(
    ("server", "number"),
    [
        pytest.param("postgres", signal.SIGQUIT, id="postgres is shut down at once"),
        pytest.param("postgres", signal.SIGKILL, id="postgres is killed"),
        pytest.param("nats", signal.SIGKILL, id="nats is killed"),
        pytest.param("runner", signal.SIGKILL, id="the runner is killed"),
    ],
)
def test_a_server_that_dies_is_shown_as_gone_and_is_started_again(
    replicated: Stack, server: str, number: signal.Signals
) -> None:
    before = rows_of(replicated)[server]
    with replicated.server_down(server, number):
        shown = rows_of(replicated)[server]
        assert (shown["state"], shown["pid"]) == ("stopped", None)
    eventually(lambda: rows_of(replicated)[server]["state"] == "running", f"{server} to answer again")
    after = rows_of(replicated)[server]
    assert after["restarts"] == before["restarts"] + 1
    assert after["pid"] != before["pid"]
    assert replicated.run("true")["state"] == "SUCCEEDED"


async def test_the_store_of_nats_can_be_put_back_to_what_it_was_and_lost(replicated: Stack, tmp_path: Path) -> None:
    await _mark(replicated)
    replicated.copy_nats_store(tmp_path / "copy")
    assert await _mark(replicated) == 2
    replicated.replace_nats_store(tmp_path / "copy")
    eventually(lambda: rows_of(replicated)["nats"]["state"] == "running", "nats to answer again")
    assert await _mark(replicated) == 2
    replicated.replace_nats_store(None)
    eventually(lambda: rows_of(replicated)["nats"]["state"] == "running", "nats to answer again")
    assert await _mark(replicated) == 1


def test_a_broker_that_lost_its_store_gets_streams_and_consumers_back_by_itself(replicated: Stack) -> None:
    replicated.replace_nats_store(None)
    assert replicated.run("true")["state"] == "SUCCEEDED"


async def _mark(stack: Stack) -> int:
    """Store one more message in a stream that no service knows; its number there."""
    password = Home(stack.home).secret("admin.nats.password")
    login = {"user": "admin", "password": password, "inbox_prefix": "_INBOX_admin"}
    connection = await nats.connect(stack.endpoint["nats_url"], **login)
    try:
        await connection.jetstream().add_stream(name="MARKS", subjects=["marks"])
        return (await connection.jetstream().publish("marks", b"")).seq
    finally:
        await connection.close()
