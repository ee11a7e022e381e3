"""Two tenants that cannot see each other's jobs, events or files; as root not from inside a job either."""

import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.e2e.stacks import AS_ROOT, Stack, eventually, superuser_url

as_root = pytest.mark.skipif(not AS_ROOT, reason="a uid per tenant needs root")


@pytest.fixture(scope="module")
def other(stack: Stack) -> str:
    """A token of a second tenant."""
    if not AS_ROOT:
        pytest.skip("without root a stack serves one tenant; test_without_root_a_second_tenant_is_refused shows that")
    made = stack.cli("token", "create", "--tenant", "rival", "--user", "eve", "--json")
    assert made.code == 0, made.err
    return str(made.json["token"])


@pytest.fixture(scope="module")
def secret_job(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A finished job of the first tenant with a file of its own."""
    script = "echo top-secret | tee secret.txt"
    return stack.submit("--no-snapshot", "--name", "quiet", "--out", "secret.txt", "--", "sh", "-c", script)


@pytest.mark.skipif(AS_ROOT, reason="as root each tenant has a uid, so several are served")
def test_without_root_a_second_tenant_is_refused(stack: Stack) -> None:
    ended = stack.cli("token", "create", "--tenant", "rival", "--user", "eve")
    assert ended.code == 3
    assert "root" in ended.err


def test_another_tenants_job_is_as_unknown_as_none(stack: Stack, other: str, secret_job: dict[str, Any]) -> None:
    for words in (("show",), ("logs",), ("events",), ("outputs",), ("stop",)):
        theirs = stack.cli(*words, secret_job["id"], token=other)
        unknown = stack.cli(*words, "j" + "0" * 26, token=other)
        assert theirs.code == unknown.code == 3, words
        assert theirs.err.replace(secret_job["id"], "JOB") == unknown.err.replace("j" + "0" * 26, "JOB")
    assert stack.cli("ls", "--json", token=other).json == []


def test_another_tenants_events_do_not_come(stack: Stack, other: str) -> None:
    rival = stack.run("true", token=other)
    mine = stack.run("true")
    with stack.client(other) as client:
        seen = []
        for event in client.events(after="0"):
            seen.append(json.loads(event.data)["job"]["id"])
            if seen.count(rival["id"]) and json.loads(event.data)["type"] == "succeeded":
                break
    assert set(seen) == {rival["id"]}
    assert mine["id"] not in seen


def test_a_tenants_token_cannot_use_another_tenants_snapshot(stack: Stack, other: str, project: Path) -> None:
    job = stack.submit("--", "true", cwd=project)
    with stack.client(other) as client:
        assert client._send("HEAD", f"/v1/snapshots/{job['spec']['snapshot']}").status_code == 404
        spec = {"command": ["true"], "snapshot": job["spec"]["snapshot"]}
        assert client._send("POST", "/v1/jobs", json={"spec": spec}).status_code == 422


@as_root
def test_jobs_of_two_tenants_run_under_uids_of_their_own(stack: Stack, other: str) -> None:
    mine, theirs = stack.run("id", "-u"), stack.run("id", "-u", token=other)
    uids = {stack.log(mine).strip(), stack.log(theirs, token=other).strip()}
    assert len(uids) == 2
    assert not uids & {"0", str(os.getuid())}


@as_root
def test_a_job_cannot_reach_what_is_not_its_tenants(stack: Stack, other: str, secret_job: dict[str, Any]) -> None:
    """From inside a job: files of another tenant, endpoint.json, secrets, a service's environment, the database."""
    api = stack.processes()["api"]["pid"]
    targets = {
        "another tenant's file": next((stack.home / "local").rglob("secret.txt")),
        "another tenant's copied output": next((stack.home / "blobs").rglob("secret.txt")),
        "endpoint.json": stack.home / "endpoint.json",
        "a secret": next((stack.home / "secrets").iterdir()),
        "a service's environment": Path(f"/proc/{api}/environ"),
    }
    for what, target in targets.items():
        assert target.read_bytes(), f"{what} is there for root"
        job = stack.run("cat", str(target), token=other)
        assert job["state"] == "FAILED", f"{what} was read"
        assert stack.log(job, token=other) == ""
    listing = stack.run("ls", str(stack.home / "local" / "work"), token=other)
    assert listing["state"] == "FAILED"


@as_root
def test_a_job_cannot_connect_to_the_databases_socket(stack: Stack, other: str) -> None:
    folder = parse_qs(urlsplit(superuser_url(stack)).query)["host"][0]
    path = next(str(path) for path in Path(folder).iterdir() if path.name.startswith(".s.PGSQL.") and path.is_socket())
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(path)
    code = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    job = stack.run("/usr/bin/python3", "-c", code, path, token=other)
    assert (job["state"], job["end_reason"]) == ("FAILED", "exit_nonzero")
    assert stack.log(job, "stderr", token=other).splitlines()[-1].startswith(("PermissionError", "FileNotFoundError"))


def test_an_admin_of_one_tenant_sees_no_other_tenants_jobs(
    stack: Stack, other: str, secret_job: dict[str, Any]
) -> None:
    made = stack.cli("token", "create", "--tenant", "rival", "--user", "root", "--role", "admin", "--json").json
    assert stack.cli("show", secret_job["id"], token=made["token"]).code == 3


def test_a_revoked_token_is_worthless_at_once(stack: Stack, other: str) -> None:
    made = stack.cli("token", "create", "--tenant", "rival", "--user", "gone", "--json").json
    assert stack.cli("ls", token=made["token"]).code == 0
    assert stack.cli("token", "revoke", str(made["id"])).code == 0
    eventually(lambda: stack.cli("ls", token=made["token"]).code == 3, "the token to be refused")
