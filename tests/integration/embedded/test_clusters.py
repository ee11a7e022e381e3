"""`tidegate up --clusters`: the file is checked before anything starts, and reaches who needs it."""

from pathlib import Path

import pytest

from infra.embedded import commands
from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.stack import Stack
from shared.contracts.subjects import SERVICES

FILE = """
[hpc]
coretypes.gpu.gres = "gpu"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clusters.toml"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize("detach", [False, True])
def test_a_wrong_file_is_refused_at_once(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], detach: bool
) -> None:
    file.write_text(FILE + "acount = 1\n")
    assert commands.up(Options(tmp_path / "home", clusters=file, detach=detach)) == 3
    said = capsys.readouterr().err
    assert f"{file}: hpc.acount: there is no such setting" in said
    assert not (tmp_path / "home").exists()


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.toml"
    assert commands.up(Options(tmp_path / "home", clusters=missing)) == 3
    assert str(missing) in capsys.readouterr().err


def environments(options: Options) -> dict[str, dict[str, str]]:
    """What each service is told."""
    Home(options.home).make()
    stack = Stack.lay_out(options, {})
    try:
        started = {process.name: process for stage in stack.stages() for process in stage.processes}
        return {service: dict(started[service].environment) for service in SERVICES}
    finally:
        stack.door.close()


def test_launcher_and_watcher_are_told_the_file_and_whose_jobs_are_theirs(file: Path, tmp_path: Path) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    told = environments(Options(home, clusters=file))
    assert {service for service in SERVICES if "TIDEGATE_CLUSTERS" in told[service]} == {"launcher", "watcher"}
    assert told["launcher"]["TIDEGATE_CLUSTERS"] == told["watcher"]["TIDEGATE_CLUSTERS"] == str(file)
    deployment = told["launcher"]["TIDEGATE_DEPLOYMENT"]
    assert told["watcher"]["TIDEGATE_DEPLOYMENT"] == deployment
    again, stranger = environments(Options(home)), environments(Options(other))
    assert again["launcher"]["TIDEGATE_DEPLOYMENT"] == deployment
    assert "TIDEGATE_CLUSTERS" not in again["launcher"]
    assert stranger["launcher"]["TIDEGATE_DEPLOYMENT"] != deployment
    assert Options.from_json(Options(home, clusters=file).to_json()) == Options(home, clusters=file)
