"""`tidegate admin backup`: a consistent copy of the database of a running stack, checked before it has its name."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from infra.embedded.archive import DATA, HOLDS, LACKS, BackupError, Manifest, is_file, pack
from infra.embedded.binaries import PostgresPrograms, find_postgres
from infra.embedded.home import Home, write_private
from infra.embedded.postgres import SUPERUSER, Postgres, last_lines_of
from infra.embedded.state import State, is_running
from shared.contracts.subjects import SERVICES


def backup(home: Home, target: Path, say: Callable[[str], None]) -> Manifest:
    """Write a backup to `target`, a new folder, or a new file where its name ends in .tar, .tar.gz or .tgz.

    It is there whole and checked, or not at all. The stack goes on working. Raises `BackupError`.
    """
    state = State.read(home) if is_running(home) else None
    if state is None or not state.servers_ready:
        raise BackupError(f"no stack is running in {home.root}: start it with `tidegate up --detach`, then back it up")
    if target.exists():
        raise BackupError(f"{target} exists already: give a name that nothing has")
    if target.is_relative_to(home.postgres):
        raise BackupError(f"{target} lies in the folder of the database itself: choose another place")
    if not target.parent.is_dir():
        raise BackupError(f"{target.parent} is no folder: make it first, or choose another place")
    programs = find_postgres()
    postgres = Postgres.at(programs, home.postgres, home.secret(f"{SUPERUSER}.postgres.password"))
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    packed = partial.with_name(f"{partial.name}.packed")
    try:
        partial.mkdir(0o700)
        manifest = _fill(partial, home, postgres, programs, say)
        if is_file(target):
            say("packing it into one file")
            pack(partial, packed)
            packed.rename(target)
        else:
            partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        packed.unlink(missing_ok=True)
    size = " before packing" if is_file(target) else ", a folder"
    say(f"the backup of {manifest.when} is {target} ({manifest.size_bytes / 1e6:.0f} MB{size})")
    say(f"it holds {'; '.join(HOLDS)}")
    say(f"it does not hold, and a restore does not roll back: {'; '.join(LACKS)}")
    return manifest


def _fill(
    folder: Path, home: Home, postgres: Postgres, programs: PostgresPrograms, say: Callable[[str], None]
) -> Manifest:
    started = datetime.now(UTC)
    say("copying the database, which goes on working")
    revisions = asyncio.run(_revisions(postgres))
    _copy(folder / DATA, home, postgres, programs)
    ended = datetime.now(UTC)
    say("checking the copy")
    verify(folder / DATA, programs)
    size = sum(path.stat().st_size for path in (folder / DATA).rglob("*") if path.is_file())
    manifest = Manifest(started, ended, version("tidegate"), programs.version, revisions, size)
    manifest.write(folder)
    return manifest


def verify(data: Path, programs: PostgresPrograms) -> None:
    """Whether every file is there as it was copied, with the log that makes them consistent."""
    command = (programs.of_backups("pg_verifybackup"), "--quiet", data)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BackupError(f"the backup is damaged: {last_lines_of(done.stderr)}")


def _copy(data: Path, home: Home, postgres: Postgres, programs: PostgresPrograms) -> None:
    passwords = home.secrets / f"backup.{os.getpid()}.pgpass"
    write_private(passwords, f"*:*:*:{SUPERUSER}:{postgres.password}\n")
    where = {"PGHOST": str(postgres.socket), "PGUSER": SUPERUSER, "PGDATABASE": "postgres"}
    try:
        done = subprocess.run(
            (
                programs.of_backups("pg_basebackup"),
                f"--pgdata={data}",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--manifest-checksums=SHA256",
                "--no-password",
            ),
            env={"PATH": os.defpath, "PGPASSFILE": str(passwords)} | where,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        passwords.unlink()
    if done.returncode != 0:
        raise BackupError(f"the database could not be copied: {last_lines_of(done.stderr)}")


async def _revisions(postgres: Postgres) -> dict[str, str]:
    """The newest migration of each schema, so that no older code is given data that it does not know."""
    import asyncpg  # half of the memory of a supervisor, which imports this module's neighbours

    try:
        connection = await asyncpg.connect(postgres.superuser_url(), timeout=30)
        try:
            return {
                service: await connection.fetchval(f'SELECT version_num FROM "{service}".alembic_version')
                for service in SERVICES
            }
        finally:
            await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise BackupError(f"the database does not answer: {error}") from None
