"""Attempts whose batch script is run by a shell, as Slurm's node would."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.backends.slurm.records import Records, read
from shared.backends.slurm.script import Order, prepare, script
from tests.patience import PATIENCE_SECONDS
from tests.servers import wait_until

_WANTED = {"dash": ["dash"], "bash": ["bash", "--posix"]}
SHELLS = {name: line for name, line in _WANTED.items() if shutil.which(name)} or {"sh": ["sh"]}


def _hear_all_signals() -> None:
    """As slurmd does: who runs the tests may have told them to ignore some, and a shell cannot undo that."""
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(ignored, signal.SIG_DFL)


@dataclass
class Attempt:
    """One attempt's directory, and the processes of this test in it."""

    directory: Path
    shell: list[str]
    run_name: str = "r1"
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.work.mkdir(parents=True)

    @property
    def work(self) -> Path:
        """Where the command runs."""
        return self.directory / self.run_name

    def order(self, *command: str, **changes: Any) -> Order:
        """An order for this attempt."""
        fields: dict[str, Any] = {
            "submission": "tidegate.j1.a1.s1",
            "token": "t1",
            "tenant": "acme",
            "job": "j1",
            "run": "run1",
            "attempt": 1,
            "directory": str(self.work),
            "attempt_directory": str(self.directory),
            "command": command or ("true",),
            "environment": {},
            "gpus": 1,
            "resumed": False,
            "stop_grace_seconds": 30,
            "warning_signal": None,
            "may_requeue": False,
        }
        return Order(**(fields | changes))

    def submit(self, order: Order) -> Path:
        """As the launcher does: the script lies in Slurm's spool, the environment beside the records."""
        prepare(order)
        return self.spool(script(order))

    def spool(self, text: str) -> Path:
        """The script as slurmd has it."""
        path = self.directory.parent / f"slurm_script.{len(list(self.directory.parent.iterdir()))}"
        path.write_bytes(os.fsencode(text))
        return path

    def submit_with(self, order: Order, tool: str, text: str) -> Path:
        """Submit a script for which a tool of the node is another one."""
        place = self.directory.parent / "bin"
        place.mkdir()
        (place / tool).write_text(f"#!/bin/sh\n{text}\n")
        (place / tool).chmod(0o755)
        prepare(order)
        return self.spool(script(order).replace("PATH=/usr/local/sbin:", f"PATH={place}:/usr/local/sbin:"))

    def start(
        self, path: Path, job: str = "7", restart: int = 0, more: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the script of a Slurm job on a node."""
        given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": job, "SLURMD_NODENAME": "n1"} | dict(more or {})
        if restart:
            given["SLURM_RESTART_COUNT"] = str(restart)
        process = subprocess.Popen(
            [*self.shell, str(path)],
            env=given,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_hear_all_signals,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> tuple[int, str]:
        """(how it ended, what it said) once it has ended."""
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert out == b""
        return process.returncode, os.fsdecode(err)

    def run(self, *command: str, **changes: Any) -> int:
        """Submit and run a command to its end; how the script ended."""
        return self.end(self.start(self.submit(self.order(*command, **changes))))[0]

    def records(self) -> Records:
        """What the runner has recorded."""
        return read(str(self.directory))

    def stdout(self) -> str:
        """What the commands have printed."""
        return os.fsdecode((self.directory / "logs" / "stdout").read_bytes())

    def await_file(self, name: str) -> str:
        """What a file that a command writes says, as soon as it says something."""
        path = self.work / name
        wait_until(lambda: path.is_file() and path.stat().st_size > 0, f"{name} written")
        return path.read_text()

    def clean_up(self) -> None:
        """End what a failed test has left: scripts, and the commands whose pid is in a file named pid*."""
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for path in self.work.glob("pid*"):
            with contextlib.suppress(ProcessLookupError, PermissionError, ValueError):
                os.killpg(int(path.read_text()), signal.SIGKILL)


def is_running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
