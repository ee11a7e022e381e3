"""The batch script of an attempt: a head with the order's values, then `runner.sh`.

Slurm keeps the script, in its spool, its state and often in accounting, so the environment's values, which may be
secrets, are not in it. `prepare` puts them into `env.<token>` in the attempt's directory, readable by the account that
the jobs run as and nobody else, before sbatch is called; the runner reads the file, and removes it before it starts the
command. Of a job that may be queued again it stays until whoever releases the attempt removes it.

What tells the runner something: `revoked` and `stop` (see `records.stop_request`) in the attempt's directory, and the
signals USR2 (look for a stop request now; it looks every LOOK_SECONDS anyway), USR1 (the warning before the time limit,
as from `--signal=B:USR1@60`) and TERM (Slurm's own: cancelled, time limit, preempted; Slurm follows it with KILL).

How the script ends: as the command did, with its code or by its signal; 75 where it did not run as it was not to
(claimed by others, revoked, stopped before); 74 where no claim could be made; 126 and 127 as a shell.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.resources
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shared.backends.local.environment import HEARTBEAT, PORT, RESUME, SECRET
from shared.backends.local.files import sync_directory, write_whole
from shared.backends.slurm.layout import environment_name

CLAIMED_ELSEWHERE: Final = 75
NOT_CLAIMED: Final = 74
WARNING_SIGNAL: Final = "USR1"
NUDGE_SIGNAL: Final = "USR2"
LOOK_SECONDS: Final = 10
"""So long a stop request, or a later run of the same job, can go unseen where no signal tells of it."""

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# As on the local backend: sun_path is short, and sockets are put below TMPDIR.
_TMPDIR_LENGTH_MAX: Final = 64
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Ours, or Slurm's, to set.
_NOT_GIVEN: Final = frozenset({RESUME, PORT, SECRET, HEARTBEAT, "CUDA_VISIBLE_DEVICES"})
# What a shell sets itself, refuses to set, or works by. env(1) sets them, and shows them for a moment to `ps`.
_SHELLS_OWN: Final = re.compile(
    "_|BASHOPTS|BASH_.*|COMP_WORDBREAKS|DIRSTACK|EPOCHREALTIME|EPOCHSECONDS|EUID|FUNCNAME|GROUPS|HISTCMD|IFS|LINENO|OPTIND|"
    "POSIXLY_CORRECT|PPID|RANDOM|SECONDS|SHELLOPTS|SRANDOM|UID|tg_.*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to run, for whom, where. Texts may hold any bytes but NUL (as `os.fsdecode` gives them).

    `token` is new with every call of sbatch. `directory` is where the command runs, `attempt_directory` holds records,
    logs and home; both are absolute, as the nodes see them. `stop_grace_seconds` is for a stop request that cannot be
    read: others say their own.
    """

    submission: str
    token: str
    tenant: str
    job: str
    run: str
    attempt: int
    directory: str
    attempt_directory: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    gpus: int
    resumed: bool
    stop_grace_seconds: int
    warning_signal: str | None
    may_requeue: bool

    def __post_init__(self) -> None:
        if not self.command or not self.command[0]:
            raise ValueError("the command is empty: give the program and its arguments")
        if _TOKEN.fullmatch(self.token) is None:
            raise ValueError(f"the token {self.token!r} must be 1 to 64 letters, digits, '-' and '_'")
        for what, path in (("directory", self.directory), ("attempt directory", self.attempt_directory)):
            if not path.startswith("/"):
                raise ValueError(f"the {what} {path!r} must be an absolute path")
        for name in self.environment:
            if _NAME.fullmatch(name) is None:
                raise ValueError(f"{name!r} cannot name an environment variable: use letters, digits and '_'")
        texts = (self.directory, self.attempt_directory, *self.command, *self.environment.values())
        if any("\0" in text for text in texts):
            raise ValueError("a NUL character can be in no argument, path or environment variable")


def script(order: Order) -> str:
    """The text of the batch script, for `os.fsencode`. Holds no value of the environment."""
    of = {
        "submission": order.submission,
        "token": order.token,
        "job": order.job,
        "attempt": order.attempt,
        "tenant": order.tenant,
    }
    head = {
        "tg_here": order.attempt_directory,
        "tg_directory": order.directory,
        "tg_token": order.token,
        "tg_of": json.dumps(of, separators=(",", ":"))[1:-1],
        "tg_grace": str(order.stop_grace_seconds),
        "tg_look": str(LOOK_SECONDS),
        "tg_warning": order.warning_signal or "",
        "tg_keep": "1" if order.may_requeue else "",
    }
    lines = ["#!/bin/sh", *(f"{name}={_quoted(value)}" for name, value in head.items())]
    lines.append("set -- " + " ".join(_quoted(word) for word in order.command))
    return "\n".join(lines) + "\n" + _fixed_part()


def prepare(order: Order) -> None:
    """Before sbatch: the file of the environment, there whole or not at all, and the directories of logs and home.

    Idempotent. The attempt's directory must be there.
    """
    for name in ("home", "logs"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{order.attempt_directory}/{name}", 0o700)
    path = f"{order.attempt_directory}/{environment_name(order.token)}"
    temporary = f"{order.attempt_directory}/.{environment_name(order.token)}.{os.urandom(8).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_whole(fd, os.fsencode(environment_file(order)))
        os.fsync(fd)
        os.rename(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    sync_directory(order.attempt_directory)


def environment_file(order: Order) -> str:
    """What `prepare` writes: shell text that the runner reads. It sets a path, and says what sets the rest."""
    variables = _environment(order)
    plain = {name: value for name, value in variables.items() if not _is_the_shells(name)}
    others = [_quoted(f"{name}={value}") for name, value in variables.items() if _is_the_shells(name)]
    lines = [f"tg_path={_quoted(variables['PATH'])}", "tg_go() {"]
    lines.append('export USER="${SLURM_JOB_USER:-tidegate}" LOGNAME="${SLURM_JOB_USER:-tidegate}"')
    if order.gpus == 0:
        lines.append('export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}"')
    lines += [f"export {name}={_quoted(value)}" for name, value in plain.items()]
    lines += [" ".join(["tg_exec", *(["/usr/bin/env", "--", *others] if others else []), '"$@"']), "}", ""]
    return "\n".join(lines)


def _environment(order: Order) -> dict[str, str]:
    """What the job gave over defaults, and over both what must be true; what Slurm sets is not in it."""
    home = f"{order.attempt_directory}/home"
    variables = {"PATH": _PATH, "LANG": "C.UTF-8", "SHELL": "/bin/sh", "PYTHONUNBUFFERED": "1"}
    if len(os.fsencode(home)) <= _TMPDIR_LENGTH_MAX:
        variables["TMPDIR"] = home
    variables |= {name: value for name, value in order.environment.items() if name not in _NOT_GIVEN}
    variables |= {
        "HOME": home,
        "TIDEGATE_JOB_ID": order.job,
        "TIDEGATE_RUN_ID": order.run,
        "TIDEGATE_ATTEMPT": str(order.attempt),
        "TIDEGATE_TENANT": order.tenant,
        "TIDEGATE_OUTPUT_DIR": order.directory,
    }
    return variables | ({RESUME: "1"} if order.resumed else {})


def _is_the_shells(name: str) -> bool:
    return _SHELLS_OWN.fullmatch(name) is not None


def _quoted(text: str) -> str:
    """One word of sh, whatever is in it. sbatch refuses a script with CR LF in it, so the two are put apart."""
    return "'" + text.replace("'", "'\\''").replace("\r\n", "\r''\n") + "'"


@functools.cache
def _fixed_part() -> str:
    """`runner.sh` without its comments, which would be kept with every job."""
    text = importlib.resources.files(__package__).joinpath("runner.sh").read_text("utf-8")
    return "".join(f"{line}\n" for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
