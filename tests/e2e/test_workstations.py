"""Workstations as a person uses them: reached through the proxy, suspended and resumed with their files, left alone."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from websockets.sync.client import connect

from shared.client.client import Tidegate
from shared.client.errors import Refused
from shared.client.workstations import Workstations
from shared.contracts.workstations import WorkstationRequest
from tests.e2e.stacks import Stack, eventually
from tests.patience import PATIENCE_SECONDS

# Keeps what it is given in its workspace, beside what cannot be kept, and sends messages back.
SERVER = """
import os, pathlib, socket, time

socket.socket(socket.AF_UNIX).bind("a-socket")
pathlib.Path(f"leads-out-{time.time_ns()}").symlink_to("/usr/bin/env")
private = pathlib.Path("private")
if not private.exists():
    private.mkdir(0o700)
    (private / "key").touch()
    os.utime(private / "key", (10**9, 10**9))


async def app(scope, receive, send):
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"] + " back"})
    elif scope["type"] == "http":
        notes, body = pathlib.Path("notes.txt"), b""
        while scope["method"] == "PUT" and (message := await receive())["type"] == "http.request":
            body += message["body"]
            notes.write_bytes(body)
            if not message.get("more_body"):
                break
        said = notes.read_bytes() if notes.exists() else b"nothing yet"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": said})
"""
SERVE = "exec python3 -m uvicorn server:app --lifespan off --host 127.0.0.1 --port $TIDEGATE_PORT"
LISTEN = "exec python3 -m http.server $TIDEGATE_PORT --bind 127.0.0.1"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory with the server's program."""
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


def _browser(stack: Stack) -> httpx.Client:
    return httpx.Client(base_url=stack.endpoint["url"], timeout=PATIENCE_SECONDS)


def _answers(client: httpx.Client, url: str, **headers: str) -> str:
    """What a workstation answers once its command listens."""
    said: list[str] = []

    def answered() -> bool:
        response = client.get(url, headers=headers)
        if response.status_code == 200:
            said.append(response.text)
        return response.status_code == 200

    eventually(answered, f"{url} to be answered")
    return said[0]


def _shown(client: Tidegate, workstation: str) -> dict[str, Any]:
    return dict(client.call("GET", f"/v1/workstations/{workstation}"))


def _held(stack: Stack) -> tuple[int, int]:
    """Slots and GPUs that the tenant holds now."""
    with stack.client() as client:
        tenant = client.call("GET", "/v1/whoami")["tenant"]
        quota = client.call("GET", f"/v1/quotas/{tenant}")
    return quota["slots_used"], quota["gpus_used"]


def test_a_suspended_workstation_holds_nothing_and_has_its_files_and_port_again_when_it_is_resumed(
    stack: Stack, workspace: Path
) -> None:
    eventually(lambda: _held(stack) == (0, 0), "the jobs of other tests to be gone")
    started = stack.cli("workstation", "start", "--gpus", "2", "--wait", "--", "sh", "-c", SERVE, cwd=workspace)
    assert started.code == 0, started.err
    id_ = started.out.splitlines()[0].split()[-1]
    path = f"/v1/workstations/{id_}/proxy/"
    bearer = {"Authorization": f"Bearer {stack.endpoint['token']}"}
    with stack.client() as client, _browser(stack) as browser, _browser(stack) as visitor:
        assert _answers(browser, path, **bearer) == "nothing yet"
        assert browser.put(path, content=b"what I found", headers=bearer).text == "what I found"

        address = started.out.splitlines()[-1]
        assert visitor.get(address).status_code == 200
        assert visitor.get(address).status_code == 401, "a ticket is good once"
        assert visitor.get(path).text == "what I found"
        cookie = f"tidegate-workstation={visitor.cookies['tidegate-workstation']}"
        origin = stack.endpoint["url"]
        socket_url = urlsplit(urljoin(origin, path))._replace(scheme="ws").geturl()
        with connect(
            socket_url,
            additional_headers={"Cookie": cookie, "Origin": origin},
            proxy=None,
            open_timeout=PATIENCE_SECONDS,
        ) as socket:
            socket.send("there and")
            assert socket.recv() == "there and back"

        Workstations(client).command(id_, "suspend")
        eventually(lambda: _shown(client, id_)["phase"] == "suspended", "it to be suspended")
        shown = _shown(client, id_)
        held = (shown["holds_gpus"], shown["occupies_slot"], shown["counts_gpu_time"])
        assert (shown["state"], shown["end_reason"], *held) == ("PAUSED", "paused_by_user", False, False, False)
        eventually(lambda: _held(stack) == (0, 0), "its slot and GPUs to be free")
        refused = visitor.get(path)
        assert (refused.status_code, refused.json()["phase"]) == (409, "suspended")
        assert f"tidegate workstation resume {id_}" in stack.cli("workstation", "url", id_).err

        resumed = stack.cli("workstation", "resume", id_, "--wait")
        assert resumed.code == 0, resumed.err
        assert _answers(visitor, path) == "what I found"
        again = _shown(client, id_)
        assert (again["attempt"], again["attempts"][-1]["origin"]) == (2, "resume")
        assert float(again["gpu_seconds"]) >= float(shown["gpu_seconds"]) > 0

        Workstations(client).command(id_, "stop")
        assert client.wait(id_).state == "STOPPED"
        left = client.outputs(id_)
        times = {file.path: file.modified_ns for file in left.files}
        assert times.keys() >= {"server.py", "notes.txt"}
        mode = {folder.path: folder.mode for folder in left.folders}["private"]
        assert (left.attempt, times["private/key"], mode) == (2, 10**18, 0o700), "as before the suspension"
    eventually(lambda: _held(stack) == (0, 0), "nothing to be held for it any more")


def test_left_alone_one_is_suspended_one_was_put_off_and_one_has_lived_long_enough(
    stack: Stack,
) -> None:
    command = ("sh", "-c", LISTEN)
    with stack.client() as client:
        known = Workstations(client)
        put_off = known.start(WorkstationRequest(command=command, idle_suspend_seconds=12)).id
        eventually(lambda: _snoozed(known, put_off), "the one to be put off to have begun")
        idle = known.start(WorkstationRequest(command=command, idle_suspend_seconds=4)).id
        short = known.start(WorkstationRequest(command=command, max_lifetime_seconds=3)).id

        lived = client.wait(short)
        assert (lived.state, lived.end_reason) == ("STOPPED", "lifetime_over")

        eventually(lambda: known.one(idle).phase == "suspended", "the idle one to be suspended")
        suspended = known.one(idle)
        assert suspended.end_reason == "paused_by_policy"
        assert "idle" in (suspended.message or "")
        assert _was_warned(client.call("GET", f"/v1/jobs/{idle}/events")["items"])

        eventually(lambda: known.one(put_off).workstation.idle_since is not None, "the other one to be seen idle")
        other = known.one(put_off)
        assert other.phase == "active"
        assert other.workstation.suspends_at is not None
        assert (other.workstation.suspends_at - datetime.now(UTC)).total_seconds() > 3000
        for workstation in (idle, put_off):
            known.command(workstation, "stop", {"force": True})
        assert client.wait(put_off).state == "STOPPED"


def _snoozed(known: Workstations, workstation: str) -> bool:
    """Whether it could be put off: not while it waits at a gate."""
    try:
        known.command(workstation, "snooze", {"seconds": 3600})
    except Refused:
        assert known.one(workstation).state != "PAUSED", "it was suspended before it could be put off"
        return False
    return True


def _was_warned(events: list[dict[str, Any]]) -> bool:
    """Whether somebody who listened heard of the suspension before it was asked for."""
    for event in events:
        job = event["job"]
        if job["desired_state"] != "run":
            return False
        if job["workstation"].get("suspends_at") is not None:
            return True
    return False
