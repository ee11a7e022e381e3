"""The host's small parts: its command line, its GPUs, its uids."""

import os
from pathlib import Path

import pytest

from shared.backends.local import layout, uids
from shared.backends.local.devices import Devices, find_devices
from shared.backends.local.launching import Launching
from shared.backends.local.options import parse
from shared.backends.local.tending import Tending


def test_the_command_line_is_read() -> None:
    options = parse(["--root", "/r", "--virtual-gpus=4", "--slots", "9", "--hide", "/a", "--hide", "/b"])
    assert (options.root, options.virtual_gpus, options.slots, options.hide) == ("/r", 4, 9, ["/a", "/b"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--root is missing"),
        (["--root"], "--root needs a value"),
        (["--root", "/r", "--gpu", "1"], "'--gpu' is not an option"),
        (["--root", "/r", "--virtual-gpus", "-1"], "--virtual-gpus is '-1'; give a number from 0 to 1024"),
        (["--root", "/r", "--slots", "0"], "--slots is '0'"),
    ],
)
def test_a_wrong_command_line_is_refused_with_the_usage(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse(arguments)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert problem in said
    assert "usage:" in said


def test_gpus_are_exclusive_and_come_back() -> None:
    devices = Devices(4, virtual=True)
    assert devices.take("a", 3) == [0, 1, 2]
    assert devices.take("b", 2) is None
    assert devices.free == 1, "what was not given is not held"
    devices.release("a")
    devices.release("a")
    assert devices.take("b", 2) == [0, 1]


def test_what_a_live_submission_holds_is_held_though_there_are_fewer_now() -> None:
    devices = Devices(2, virtual=True)
    devices.mark_held("a", [1, 5])
    assert devices.free == 1
    assert devices.take("b", 1) == [0]


def test_what_was_released_before_the_host_came_to_look_has_ended(tmp_path: Path) -> None:
    """Else every process of the machine would be looked through for what it might have left."""
    layout.make_root(str(tmp_path))
    (tmp_path / "released" / "2026-11-30").mkdir()
    (tmp_path / "released" / "2026-11-30" / "ours.exit.json").write_text("{}")
    launching = Launching(str(tmp_path), Devices(1, virtual=True), slots=1)
    launching.adopt("ours", [0])
    launching.adopt("another", [])
    tending = Tending(str(tmp_path), launching)
    for submission in ("ours", "another"):
        pidfd = os.pidfd_open(os.getpid())
        tending.pidfds[pidfd] = submission
        tending.supervisor_ended(pidfd)
    assert tending.unsettled == {"another"}
    assert (launching.live, launching.devices.free) == ({"another"}, 1)


def test_gpus_are_virtual_where_asked_or_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "listdir", lambda _path: ["null", "nvidiactl", "nvidia0", "nvidia1", "nvidia-uvm"])
    assert (find_devices(None).total, find_devices(None).virtual) == (2, False)
    assert (find_devices(3).total, find_devices(3).virtual) == (3, True)
    monkeypatch.setattr(os, "listdir", lambda _path: ["null"])
    assert (find_devices(None).total, find_devices(None).virtual) == (8, True)


def test_uids_start_where_the_operator_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout.make_root(str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv(uids.UID_BASE_VARIABLE, "300000")
    assert [uids.uid_for(str(tmp_path), tenant) for tenant in ("a", "b", "a")] == [300000, 300001, 300000]
    monkeypatch.setenv(uids.UID_BASE_VARIABLE, "400000")
    assert uids.uid_for(str(tmp_path), "b") == 300001, "once given, for ever"


@pytest.mark.parametrize("text", ["0", "-5", "x", "", "99999999999"])
def test_a_wrong_base_for_uids_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(uids.UID_BASE_VARIABLE, text)
    with pytest.raises(uids.UidTableError, match="give a number"):
        uids.uid_base(str(tmp_path))


def test_without_root_every_tenant_is_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert uids.uid_for(str(tmp_path), "a") == 1234
    assert not (tmp_path / layout.UIDS).exists()
