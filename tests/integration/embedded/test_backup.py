"""`tidegate admin backup` and `restore`: the database of a stack goes back to what it was, and is told so."""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from infra.embedded import backup_commands
from infra.embedded.archive import MANIFEST
from infra.embedded.binaries import find_postgres
from infra.embedded.home import Home
from infra.embedded.postgres import DATABASE, SUPERUSER, Postgres
from infra.embedded.processes import Identity, start
from infra.embedded.restored import Restored, forget, put_in_place
from tests.e2e.stacks import Ended, Stack, eventually
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("backup"))
    running.up("--virtual-gpus", "2")
    yield running
    running.down()


@pytest.fixture(scope="module")
def first_job(stack: Stack) -> str:
    return str(stack.run("true")["id"])


@pytest.fixture(scope="module")
def gate() -> Iterator[Path]:
    """A folder that jobs of every tenant may write to: they wait for `open` in it, and leave a file of their name."""
    with tempfile.TemporaryDirectory(prefix="tidegate-gate-", dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


@pytest.fixture(scope="module")
def waiting_job(stack: Stack, gate: Path) -> str:
    return submitted(stack, gate)


def submitted(stack: Stack, gate: Path) -> str:
    """A job that has begun and waits at the gate."""
    script = f"mktemp {gate}/$TIDEGATE_JOB_ID.XXXXXX; while [ ! -e {gate}/open ]; do sleep 0.05; done"
    job = str(stack.cli("submit", "--json", "--no-snapshot", "--", "sh", "-c", script).json["id"])
    eventually(lambda: stack.client().job(job).state == "RUNNING", "the job to run")
    return job


@pytest.fixture(scope="module")
def backup(stack: Stack, first_job: str, waiting_job: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder, made when the first job had ended and the other one ran."""
    made = tmp_path_factory.mktemp("kept") / "backup"
    ended = stack.cli("admin", "backup", str(made))
    assert ended.code == 0, ended.err
    assert f"is {made}" in ended.out
    assert "does not hold" in ended.out
    return made


def restored_into(home: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> Ended:
    capsys.readouterr()
    code = backup_commands.restore(home, source)
    return Ended(code, *capsys.readouterr())


def test_a_backup_says_what_it_is_and_is_for_its_owner_only(backup: Path) -> None:
    manifest = json.loads((backup / MANIFEST).read_text())
    assert manifest["format"] == 1
    assert manifest["started_at"] <= manifest["ended_at"]
    assert manifest["postgres"] == find_postgres().version
    assert manifest["revisions"]["api"] >= "0002"
    assert any("blobs" in line for line in manifest["does_not_hold"])
    assert backup.stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in backup.parent.iterdir()) == ["backup"]


def test_a_backup_is_written_over_nothing(stack: Stack, backup: Path) -> None:
    ended = stack.cli("admin", "backup", str(backup))
    assert ended.code == 3
    assert "exists already" in ended.err


def test_a_stack_that_runs_is_not_restored(stack: Stack, backup: Path) -> None:
    ended = stack.cli("admin", "restore", str(backup))
    assert ended.code == 3
    assert "tidegate down" in ended.err


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_server_elsewhere_is_not_backed_up_but_the_procedure_is_named(stack: Stack, command: str) -> None:
    elsewhere = Stack(stack.home, {"TIDEGATE_URL": "https://tidegate.example", "TIDEGATE_TOKEN": "x"})
    ended = elsewhere.cli("admin", command, "somewhere")
    assert ended.code == 3
    assert "infra/postgres/README.md" in " ".join(ended.err.split())


def test_a_stack_that_does_not_run_is_not_backed_up(tmp_path: Path) -> None:
    ended = Stack(tmp_path).cli("admin", "backup", "backup.tar")
    assert ended.code == 3
    assert "no stack is running" in ended.err


def changed(backup: Path, folder: Path, **manifest: Any) -> Path:
    """A copy of a backup whose manifest says something else."""
    copy = folder / "changed"
    shutil.copytree(backup, copy)
    said = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps(said | manifest))
    return copy


@pytest.mark.parametrize(
    ("manifest", "sentence"),
    [
        pytest.param({"postgres": "14.2"}, "made by PostgreSQL 14.2", id="another major version of PostgreSQL"),
        pytest.param({"revisions": {"api": "9999"}}, "whose tables of api", id="a newer Tidegate"),
        pytest.param({"format": 2}, "has format 2", id="a newer kind of backup"),
        pytest.param({"started_at": "yesterday"}, "cannot be understood", id="no time"),
    ],
)
def test_a_backup_that_does_not_fit_is_refused(
    backup: Path, tmp_path: Path, manifest: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = restored_into(tmp_path / "home", changed(backup, tmp_path, **manifest), capsys)
    assert ended.code == 3
    assert sentence in ended.err
    assert not (tmp_path / "home" / "pg").exists()


def test_a_damaged_backup_is_refused_and_changes_nothing(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = changed(backup, tmp_path)
    largest = max((damaged / "pg" / "base").rglob("*"), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.seek(100)
        file.write(b"damage")
    home = tmp_path / "home"
    (home / "pg").mkdir(parents=True)
    (home / "pg" / "as-before").touch()
    ended = restored_into(home, damaged, capsys)
    assert ended.code == 3
    assert "is damaged" in ended.err
    assert largest.name in ended.err
    assert [path.name for path in home.iterdir() if "pg" in path.name or "restored" in path.name] == ["pg"]
    assert (home / "pg" / "as-before").exists()


@pytest.mark.parametrize("kind", ["a folder", "a file", "nothing"])
def test_what_is_no_backup_is_refused(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source.tar"
    if kind == "a folder":
        source.mkdir()
    if kind == "a file":
        source.write_text("no backup")
    ended = restored_into(tmp_path / "home", source, capsys)
    assert ended.code == 3
    assert str(source) in ended.err


async def test_a_backup_in_one_file_goes_into_a_home_with_other_secrets(
    stack: Stack, first_job: str, waiting_job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "backup.tar.gz"
    assert stack.cli("admin", "backup", str(file)).code == 0
    assert file.stat().st_mode & 0o777 == 0o600
    home = Home(tmp_path / "home")
    assert restored_into(home.root, file, capsys).code == 0
    postgres = Postgres.at(find_postgres(), home.postgres, home.secret(f"{SUPERUSER}.postgres.password"))
    assert postgres.password != Home(stack.home).secret(f"{SUPERUSER}.postgres.password")
    postgres.prepare()
    child = start(postgres.process(home.log("postgres")))
    try:
        known: list[str] = []
        while not known:
            try:
                connection = await asyncpg.connect(postgres.superuser_url(DATABASE))
            except (OSError, asyncpg.CannotConnectNowError):
                assert child.poll() is None
                continue
            known = [row[0] for row in await connection.fetch("SELECT id FROM api.jobs")]
            await connection.close()
    finally:
        Identity.of_child(child).end(signal.SIGINT, PATIENCE_SECONDS)
        child.wait()
        postgres.clean()
    assert {first_job, waiting_job} <= set(known)


def test_a_restored_stack_knows_what_the_backup_knew_and_runs_nothing_twice(
    stack: Stack, backup: Path, first_job: str, waiting_job: str, gate: Path
) -> None:
    tenant = stack.client().call("GET", "/v1/whoami")["tenant"]
    assert stack.cli("quota", "set", tenant, "--slots", "7").code == 0
    later = submitted(stack, gate)
    assert stack.cli("down").code == 0
    ended = stack.cli("admin", "restore", str(backup))
    assert ended.code == 0, ended.err
    assert "lost is what the database took in since then" in ended.out
    assert "blobs" in ended.out
    kept = [path for path in stack.home.iterdir() if path.name.startswith("pg.before-")]
    assert len(kept) == 1
    assert str(kept[0]) in ended.out
    said = stack.cli("up", "--detach", "--virtual-gpus", "2")
    assert said.code == 0, said.err
    assert "nothing is launched before what runs is seen" in said.out
    eventually(lambda: not kept[0].exists(), "what was there before to go once the start has gone well")
    assert stack.client().job(first_job).state == "SUCCEEDED"
    assert stack.cli("show", later, "--json").code == 3
    assert stack.cli("quota", "get", tenant, "--json").json["slots"] is None
    eventually(lambda: later in orphans(stack), "what runs of the lost time to be seen")
    (gate / "open").touch()
    eventually(lambda: stack.client().job(waiting_job).state == "SUCCEEDED", "the job that ran on")
    again = stack.run("true")
    assert (again["state"], again["epoch"]) == ("SUCCEEDED", 2)
    assert sorted(path.name.split(".")[0] for path in gate.iterdir()) == sorted([waiting_job, later, "open"])
    assert Restored.read(Home(stack.home)) is None


def orphans(stack: Stack) -> set[str]:
    return {row["job"] for row in stack.client(admin=True).call("GET", "/v1/orphans")["items"]}


@pytest.fixture
def half_restored(tmp_path: Path) -> Home:
    """A restore that was killed once it had said what it was about to do."""
    home = Home(tmp_path)
    for name in ("pg", "pg.restored-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "is").write_text(name)
    Restored("2026-11-30T12:00:00+00:00", "pg.restored-1", ("pg.before-1",)).write(home)
    return home


@pytest.mark.parametrize("steps", [0, 1, 2], ids=["before it moved anything", "between its moves", "after them"])
def test_a_restore_that_was_killed_is_finished_by_the_next_start(half_restored: Home, steps: int) -> None:
    moves = [("pg", "pg.before-1"), ("pg.restored-1", "pg")]
    for source, target in moves[:steps]:
        os.rename(half_restored.root / source, half_restored.root / target)
    put_in_place(half_restored)
    put_in_place(half_restored)
    assert (half_restored.postgres / "is").read_text() == "pg.restored-1"
    assert (half_restored.root / "pg.before-1" / "is").read_text() == "pg"
    forget(half_restored)
    forget(half_restored)
    assert [path.name for path in half_restored.root.iterdir()] == ["pg"]
