"""`tidegate admin restore`: a backup takes the place of a stopped stack's database, and the next start is told so."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from infra.embedded.archive import LACKS, BackupError, Manifest, read_manifest, unpack
from infra.embedded.backup import verify
from infra.embedded.binaries import find_postgres
from infra.embedded.home import Home
from infra.embedded.postgres import SUPERUSER, Postgres, PostgresError
from infra.embedded.restored import Restored, put_in_place
from infra.embedded.serve import end_leftovers
from infra.embedded.state import AlreadyRunningError, State, hold

_MIGRATIONS = Path(__file__).resolve().parents[2] / "services"


def restore(home: Home, source: Path, say: Callable[[str], None]) -> None:
    """Put the backup at `source` in the place of the database of a stack that does not run.

    What was there is kept until the next start has gone well. Raises `BackupError`; nothing was changed then.
    """
    manifest = read_manifest(source)
    programs = find_postgres()
    if manifest.major != programs.major:
        raise BackupError(
            f"{source} was made by PostgreSQL {manifest.postgres}, and {programs.bin} holds {programs.version}. Set "
            f"TIDEGATE_PG_BIN to the folder of a PostgreSQL {manifest.major}"
        )
    if unknown := [service for service, revision in manifest.revisions.items() if not _knows(service, revision)]:
        raise BackupError(
            f"{source} was made by Tidegate {manifest.tidegate}, whose tables of {', '.join(unknown)} this version "
            "does not know: use that version, or a newer one"
        )
    try:
        home.make()
        with hold(home):
            _restore(home, source, manifest, say)
    except AlreadyRunningError:
        raise BackupError(f"a stack is running in {home.root}: stop it first with `tidegate down`") from None


def _restore(home: Home, source: Path, manifest: Manifest, say: Callable[[str], None]) -> None:
    programs = find_postgres()
    postgres = Postgres.at(programs, home.postgres, home.secret(f"{SUPERUSER}.postgres.password"))
    if (state := State.read(home)) is not None:
        end_leftovers(state)
    postgres.end_leftovers()
    put_in_place(home)  # a restore before this one may have been killed on its way
    before = Restored.read(home)
    now = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
    restored = Restored(
        manifest.started_at.isoformat(), f"pg.restored-{now}", (*(before.aside if before else ()), f"pg.before-{now}")
    )
    data = home.root / restored.data
    try:
        say(f"copying the backup of {manifest.when}")
        unpack(source, data)
        say("checking the copy")
        verify(data, programs)
        say(f"recovering it with PostgreSQL {programs.version}")
        postgres.recover(data)
        restored.write(home)
    except PostgresError as error:
        raise BackupError(f"{source} cannot be used: {error}") from None
    finally:
        if Restored.read(home) != restored:
            shutil.rmtree(data, ignore_errors=True)
    put_in_place(home)
    say(f"the database is that of {manifest.when}")
    if (aside := home.root / restored.aside[-1]).exists():
        say(f"the one before is kept as {aside} until the next start has gone well")
    say(
        "lost is what the database took in since then: submitted jobs, stops and other commands, quotas, tokens, and "
        "Idempotency-Keys (a request that is sent again makes a second job)"
    )
    say(f"not rolled back: {'; '.join(LACKS)}")
    say("start it with `tidegate up --detach`: nothing is launched before what already runs has been seen and adopted")
    say("`tidegate admin orphans` then lists what was seen of jobs that the database does not know")


def _knows(service: str, revision: str) -> bool:
    """Whether this version of the code has that migration."""
    return any((_MIGRATIONS / service / "migrations" / "versions").glob(f"{revision}_*.py"))
