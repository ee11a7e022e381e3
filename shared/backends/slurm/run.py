"""Slurm's commands as processes: argument lists, an environment of their own, an end in any case."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

_REASON_LENGTH_MAX = 500
_KILLED_BY_TIMEOUT = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Ran:
    """A command that ended by itself. Bytes that are not UTF-8 are replaced in what it printed."""

    code: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """What it said went wrong, on one line."""
        said = " / ".join(line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip())
        return said[:_REASON_LENGTH_MAX] or "it said nothing"


@dataclass(frozen=True, slots=True)
class DidNotRun:
    """No answer: it did not start, ran out of time, or was killed. What it was told to do may have happened."""

    why: str


@dataclass(frozen=True, slots=True)
class Commands:
    """How to run Slurm's commands: with `prefix` before them, such as `("ssh", "login1")`.

    `environment` is all that a command gets here, and nothing of this process's own: variables such as
    SBATCH_PARTITION or SQUEUE_STATES would change what is asked. Behind a prefix it is set by env(1).
    """

    prefix: tuple[str, ...]
    environment: Mapping[str, str]

    async def run(
        self,
        command: Sequence[str],
        *,
        seconds: float,
        stdin: bytes | None = None,
        variables: Mapping[str, str] | None = None,
        fenced: bool = False,
    ) -> Ran | DidNotRun:
        """Run one command; at the time-out its whole process group is killed, as it is when the caller is cancelled.

        A `fenced` one also ends when this process dies, and at its time-out even while this process is frozen.
        """
        given = {**self.environment, **(variables or {})}
        process = await self._start(self._words(command, given, seconds if fenced else None), given, stdin)
        if isinstance(process, DidNotRun):
            return process
        answer: tuple[bytes, bytes] | None = None
        try:
            async with asyncio.timeout(seconds):
                answer = await process.communicate(stdin)
        except TimeoutError:
            return DidNotRun(f"{command[0]} did not answer within {seconds:g} s")
        finally:
            if answer is None:
                await _kill(process)
        (stdout, stderr), code = answer, process.returncode
        if code is None or code < 0 or (fenced and code == _KILLED_BY_TIMEOUT):
            return DidNotRun(f"{command[0]} was killed")
        return Ran(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    def _words(self, command: Sequence[str], given: Mapping[str, str], deadline: float | None) -> list[str]:
        words = list(command)
        if deadline is not None:
            words = ["timeout", "--signal=KILL", f"{deadline:g}", *words]
        if self.prefix:
            words = ["env", *(f"{name}={value}" for name, value in given.items()), *words]
        if any(PurePath(word).name == "ssh" for word in self.prefix):
            # ssh joins its arguments with blanks and gives them to a shell on the other side.
            words = [shlex.quote(word) for word in words]
        words = [*self.prefix, *words]
        # timeout(1) passes the TERM on, so that what it runs ends with it when this process is killed.
        return ["setpriv", "--pdeathsig=TERM", *words] if deadline is not None else words

    async def _start(
        self, words: list[str], given: Mapping[str, str], stdin: bytes | None
    ) -> asyncio.subprocess.Process | DidNotRun:
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # ssh and its like look for their files at home: what runs behind a prefix is told with env(1).
                env=dict(os.environ) if self.prefix else dict(given),
                cwd="/",
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return DidNotRun(f"{words[0]} could not be started: {error}")


async def _kill(process: asyncio.subprocess.Process) -> None:
    """The whole group: also what holds its pipes open after the command itself has ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
