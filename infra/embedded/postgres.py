"""A PostgreSQL server of our own: made once, started, and asked for its address. No TCP, SCRAM for everybody."""

import hashlib
import os
import shutil
import signal
import stat
import subprocess
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.embedded.binaries import PostgresPrograms
from infra.embedded.processes import Account, Identity, Process
from infra.embedded.reach import can_reach, unprivileged_account, within_reach

SUPERUSER = "postgres"
DATABASE = "tidegate"  # as infra.postgres.provision makes it, which this module is too light to import

_LONGEST_SOCKET_PATH = 107  # sun_path in unix(7), less its final zero byte
_SOCKET = ".s.PGSQL.5432"
_HERE = "/proc/self/cwd"  # see infra.embedded.reach

_INITDB_OPTIONS = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-instructions")
_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    "password_encryption": "scram-sha-256",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}


class PostgresError(Exception):
    """The server cannot be made or started; the sentence says why and what to do."""


@dataclass(frozen=True)
class Postgres:
    """One server: its programs, its data, the folder of its socket, its superuser's password."""

    programs: PostgresPrograms
    data: Path
    socket: Path
    password: str
    account: Account | None

    @classmethod
    def at(cls, programs: PostgresPrograms, data: Path, password: str) -> "Postgres":
        """The server whose data is at `data`, run by an account and from paths that work for the caller."""
        account = unprivileged_account()
        return cls(within_reach(programs, account), data, socket_folder(data, account), password, account)

    def url(self, role: str, password: str, database: str = DATABASE) -> str:
        """The address for one login role."""
        return socket_url(self.socket, role, password, database)

    def superuser_url(self, database: str = DATABASE) -> str:
        return self.url(SUPERUSER, self.password, database)

    def process(self, log: Path, **settings: str) -> Process:
        """How the server runs. SIGINT is its fast shutdown: transactions are rolled back, the data is left clean."""
        options = _SETTINGS | {"unix_socket_directories": str(self.socket)} | settings
        return Process(
            name="postgres",
            command=(
                str(self.programs.postgres),
                "-D",
                _HERE,
                *(f"--{name}={value}" for name, value in options.items()),
            ),
            cwd=self.data,
            log=log,
            account=self.account,
            ready=f"postgres://{urllib.parse.quote(str(self.socket))}",
            stop_signal=signal.SIGINT,
            stop_seconds=30,
        )

    def prepare(self) -> None:
        """Make the data folder if there is none, and take away what a killed server left. Nothing may run on it now."""
        _own_folder(self.socket, self.account)
        version = self.data / "PG_VERSION"
        if not version.exists():
            self._initialise()
        elif (made_by := version.read_text().strip()) != str(self.programs.major):
            raise PostgresError(
                f"{self.data} was made by PostgreSQL {made_by}, and {self.programs.bin} holds {self.programs.version}. "
                f"Set TIDEGATE_PG_BIN to the folder of a PostgreSQL {made_by}, or carry the data over with pg_dump."
            )
        self.end_leftovers()
        # Nothing runs on the data now. A lock file whose pid a stranger has got (a reboot) would stop the start.
        for lock in (self.data / "postmaster.pid", self.socket / f"{_SOCKET}.lock"):
            lock.unlink(missing_ok=True)

    def clean(self) -> None:
        """Once it has stopped: leave nothing outside the home."""
        shutil.rmtree(self.socket, ignore_errors=True)

    def _initialise(self) -> None:
        """`initdb`, under another name until it is whole."""
        partial = self.data.with_name(f"{self.data.name}.new")
        shutil.rmtree(partial, ignore_errors=True)
        _own_folder(partial, self.account)
        secret = self.socket / "password"
        secret.touch(0o600)
        try:
            if self.account:
                os.chown(secret, self.account.uid, self.account.gid)
            secret.write_text(f"{self.password}\n")
            options = ("-U", SUPERUSER, f"--pwfile={secret}", *_INITDB_OPTIONS)
            made = self._run(partial, self.programs.initdb, "-D", _HERE, *options)
        finally:
            secret.unlink()
        if made.returncode != 0:
            raise PostgresError(f"initdb could not make {self.data}: {made.stderr.strip() or made.stdout.strip()}")
        partial.rename(self.data)

    def recover(self, copy: Path) -> None:
        """Make a folder that was copied from a backup this server's own: replayed to its end, with our password.

        The server does so without listening to anybody. Raises `PostgresError` where it cannot.
        """
        _give(copy, self.account)
        single = (self.programs.postgres, "--single", "-D", _HERE, "-c", "exit_on_error=on", "postgres")
        done = self._run(copy, *single, given=f"ALTER ROLE {SUPERUSER} PASSWORD '{self.password}';\n")
        if done.returncode != 0:
            raise PostgresError(f"PostgreSQL cannot recover it: {last_lines_of(done.stderr)}")

    def _run(self, folder: Path, *command: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run one of the programs in `folder`, as the account that the server runs as."""
        return subprocess.run(
            command,
            cwd=folder,
            env={"PATH": os.defpath, "TZ": "UTC"},
            user=self.account.uid if self.account else None,
            group=self.account.gid if self.account else None,
            extra_groups=[] if self.account else None,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )

    def end_leftovers(self) -> None:
        """End what a supervisor that was killed left running on this data, told by its program and working folder."""
        for identity in sorted(self._running_on_the_data(), key=lambda found: found.start_ticks):
            identity.end(signal.SIGINT, 30)

    def _running_on_the_data(self) -> Iterator[Identity]:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or (identity := Identity.of(int(entry.name))) is None:
                continue
            try:
                if (entry / "comm").read_text().strip() == "postgres" and (entry / "cwd").samefile(self.data):
                    yield identity
            except OSError:  # gone, or another user's
                continue


def socket_url(socket: Path, role: str, password: str, database: str = DATABASE) -> str:
    """The address of a server that listens in the folder `socket`, for one login role."""
    quoted = urllib.parse.quote(password, safe="")
    return f"postgresql://{role}:{quoted}@/{database}?host={urllib.parse.quote(str(socket), safe='/')}"


def socket_folder(data: Path, account: Account | None) -> Path:
    """Beside the data where the path fits a socket and the account gets there; else a short one, named by a hash.

    A comma parts folders in `unix_socket_directories` and hosts in an address, so that a path with one does not fit.
    """
    beside = data.parent / "run" / "postgres"
    parent = data.parent.resolve()
    fits = len(os.fsencode(beside / _SOCKET)) <= _LONGEST_SOCKET_PATH and "," not in str(beside)
    if fits and (account is None or can_reach(account, parent)):
        return beside
    mark = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:16]
    runtime = "/run" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp")  # noqa: S108 - ownership is checked
    base = Path(runtime)
    return (base if base.is_dir() and os.access(base, os.W_OK) else Path("/tmp")) / f"tidegate-{mark}"  # noqa: S108 - as above


def last_lines_of(output: str, lines: int = 5) -> str:
    """The end of what a program said, on one line, without the statement that it was given."""
    said = [line.strip() for line in output.splitlines() if line.strip() and "STATEMENT:" not in line]
    return " / ".join(said[-lines:]) or "it said nothing"


def _give(folder: Path, account: Account | None) -> None:
    """Make everything in `folder` the account's, and nobody else's."""
    for root, _, files in os.walk(folder):
        for path, mode in ((root, 0o700), *((os.path.join(root, file), 0o600) for file in files)):
            os.chmod(path, mode)
            if account:
                os.chown(path, account.uid, account.gid)


def _own_folder(folder: Path, account: Account | None) -> None:
    """See to it that `folder` is a real folder, 0700, of the account: in a shared parent a stranger may come first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    uid = account.uid if account else os.geteuid()
    try:
        folder.mkdir(0o700)
        if account:
            os.chown(folder, account.uid, account.gid)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise PostgresError(
                f"{folder} is to hold the database's socket, but belongs to uid {found.st_uid} instead of {uid}. "
                "Somebody else made it: have it removed, or choose another --home."
            ) from None
        folder.chmod(0o700)
