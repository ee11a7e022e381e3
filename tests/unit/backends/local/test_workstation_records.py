"""What is read of a workstation's endpoint and activity: whole records only, and doubt is never idleness."""

import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.backends.local import layout
from shared.backends.local.activity import read_activity
from shared.backends.local.endpoint import Endpoint, open_endpoint, read_endpoint
from shared.backends.local.files import write_record

NAME = "tidegate.j1.a1.s1"
START, LATER, NOW = (f"2026-11-30T09:{minute}:00.000Z" for minute in ("00", "10", "20"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A backend's root."""
    layout.make_root(str(tmp_path))
    return tmp_path


def write(root: Path, kind: str, **fields: object) -> None:
    """One record of the workstation."""
    write_record(layout.record_path(str(root), NAME, kind), {"submission": NAME} | fields)


def activity(root: Path, probes: dict[str, object], broken: dict[str, str] | None = None) -> None:
    """A record of its activity since START, as of NOW."""
    write(root, layout.ACTIVITY, since=START, at=NOW, probes=probes, broken=broken or {})


def test_tells_port_and_secret_and_shows_no_secret(root: Path) -> None:
    write(root, layout.ENDPOINT, port=20_001, secret="hush")
    found = read_endpoint(root, NAME)
    assert found == Endpoint(20_001, "hush")
    assert "hush" not in repr(found)


@pytest.mark.parametrize("fields", [{}, {"port": 0, "secret": "s"}, {"port": 1, "secret": ""}, {"port": "1"}])
def test_what_is_no_endpoint_is_none(root: Path, fields: dict[str, object]) -> None:
    assert read_endpoint(root, NAME) is None
    write(root, layout.ENDPOINT, **fields)
    assert read_endpoint(root, NAME) is None


def test_was_last_active_when_any_probe_last_saw_it(root: Path) -> None:
    activity(root, {"cpu": LATER, "heartbeat": None})
    found = read_activity(root, NAME)
    assert found is not None
    assert found.last == datetime(2026, 11, 30, 9, 10, tzinfo=UTC)


def test_was_last_active_at_its_start_if_never_since(root: Path) -> None:
    activity(root, {"cpu": None})
    found = read_activity(root, NAME)
    assert found is not None
    assert found.last == found.since


def test_a_broken_probe_leaves_in_doubt_whether_it_is_idle(root: Path) -> None:
    activity(root, {"cpu": None}, broken={"gpu": "nvidia-smi ended with 9"})
    found = read_activity(root, NAME)
    assert found is not None
    assert found.last is None


def test_without_any_probe_nothing_is_idle(root: Path) -> None:
    activity(root, {})
    found = read_activity(root, NAME)
    assert found is not None
    assert found.last is None


@pytest.mark.parametrize("probes", [{"cpu": "yesterday"}, {"cpu": 5}, []])
def test_a_moment_that_cannot_be_read_is_no_information(root: Path, probes: object) -> None:
    write(root, layout.ACTIVITY, since=START, at=NOW, probes=probes, broken={})
    assert read_activity(root, NAME) is None


def test_leads_to_nobody_else_who_listens_at_its_port(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        write(root, layout.ENDPOINT, port=port, secret="hush")
        assert open_endpoint(root, NAME) is None, "nobody knows whose it is"
        write(root, layout.SPEC, uid=os.geteuid() + 1)
        assert open_endpoint(root, NAME) is None, "another user has taken its port"
        write(root, layout.SPEC, uid=os.geteuid())
        assert open_endpoint(root, NAME) == Endpoint(port, "hush")
    assert open_endpoint(root, NAME) is None, "its command does not listen any more"
