"""Starting the job's own command: as its tenant, in its directory, with nothing of ours; and saying plainly why not."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
from collections.abc import Mapping, Sequence

from shared.backends.local import linux

NOT_FOUND = "command_not_found"
CANNOT_EXECUTE = "cannot_execute"
DIRECTORY_MISSING = "working_directory_missing"
DIRECTORY_UNREACHABLE = "working_directory_unreachable"
ISOLATION_FAILED = "isolation_failed"

# What is ignored, by Python or by whoever started us, stays ignored across exec, and the command would never know.
_IGNORED = [
    number
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    if signal.getsignal(number) is signal.SIG_IGN
]


class StartFailure(Exception):
    """The command was not started; `code` is what a shell would say (126 or 127)."""

    def __init__(self, reason: str, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.reason, self.code, self.sentence = reason, code, sentence


def start(
    argv: list[str],
    environment: Mapping[str, str],
    directory: str,
    user: tuple[int, int] | None,
    output: Sequence[int],
) -> int:
    """Fork and exec; returns the pid once exec has succeeded, raises StartFailure when it has not.

    `user` is (uid, gid) to become, or None to stay; `output` the descriptors for stdout and stderr. The command dies
    with this process, and inherits from it what `become_supervisor` has set: standard input, umask, no core files, no
    groups, no new privileges. The child does as little as it can: all that it touches is copied for it.
    """
    candidates = _candidates(argv[0], environment["PATH"], directory)
    read_end, write_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        step = "start"
        try:
            os.setpgid(0, 0)
            for ignored in _IGNORED:
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            for target, source in enumerate(output, start=1):
                os.dup2(source, target)
            step = "become"
            if user is not None:
                os.setresgid(user[1], user[1], user[1])
                os.setresuid(user[0], user[0], user[0])
            linux.die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)
            step = "chdir"
            os.chdir(directory)
            step = "exec"
            _exec(candidates, argv, environment)
        except BaseException as error:  # whatever it is: silence would be read as a command that exited 127
            number = error.errno if isinstance(error, OSError) else errno.EINVAL
            path = error.filename if isinstance(error, OSError) and error.filename else argv[0]
            os.write(write_end, json.dumps([step, number, str(path)]).encode())
        finally:
            os._exit(127)
    os.close(write_end)
    failure = b""
    while part := os.read(read_end, 4096):
        failure += part
    os.close(read_end)
    if not failure:
        return pid
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    step, number, path = json.loads(failure)
    raise _explain(step, number, path, argv, environment, directory, user)


def _candidates(program: str, path: str, directory: str) -> list[str]:
    """Where execvpe(3) would look for it, but for places where there is nothing: we see all that the tenant sees."""
    if "/" in program:
        return [program]
    places = [f"{place or '.'}/{program}" for place in path.split(":")]
    return [place for place in places if os.path.lexists(os.path.join(directory, place))]


def _exec(candidates: list[str], argv: list[str], environment: Mapping[str, str]) -> None:
    """execvpe(3), but an existing file that cannot be run is never reported as a missing one."""
    last: OSError | None = None
    for candidate in candidates:
        try:
            os.execve(candidate, argv, environment)  # noqa: S606 - no shell is the point: arguments arrive as given
        except NotADirectoryError:
            continue
        except FileNotFoundError as error:
            if not os.path.lexists(candidate):
                continue
            error.filename = candidate
            raise
        except OSError as error:
            error.filename = candidate
            last = last or error
    raise last or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])


def _explain(
    step: str,
    number: int,
    path: str,
    argv: list[str],
    environment: Mapping[str, str],
    directory: str,
    user: tuple[int, int] | None,
) -> StartFailure:
    problem = os.strerror(number)
    if step == "chdir":
        if number in (errno.ENOENT, errno.ENOTDIR):
            return StartFailure(
                DIRECTORY_MISSING, 126, f"the working directory {directory} is not there: stage the inputs again"
            )
        return StartFailure(
            DIRECTORY_UNREACHABLE,
            126,
            f"the working directory {directory} cannot be entered ({problem}){_closed_at(directory, user)}: let others "
            f"pass through it (chmod o+x), or choose a home that everybody can reach",
        )
    if step != "exec":
        return StartFailure(
            ISOLATION_FAILED,
            126,
            f"the command could not be given a user of its own ({step}: {problem}): run the host "
            f"with the rights to change users, or without root",
        )
    if number in (errno.ENOENT, errno.ENOTDIR) and not os.path.lexists(os.path.join(directory, path)):
        where = f"in {directory}" if "/" in argv[0] else f"on PATH ({environment['PATH']})"
        return StartFailure(
            NOT_FOUND,
            127,
            f"the command {argv[0]!r} was not found {where}: check its spelling, or give its path as "
            f"./NAME if it is one of your files",
        )
    if number == errno.ENOENT:
        problem = "the interpreter named in its first line is not there"
    elif number == errno.ENOEXEC:
        problem = "it is no program and its first line names no interpreter, such as #!/bin/sh"
    elif number == errno.EACCES:
        problem = (
            f"permission denied{_closed_at(os.path.join(directory, path), user)}; is it marked executable (chmod +x)?"
        )
    return StartFailure(CANNOT_EXECUTE, 126, f"the command {path} cannot be executed: {problem}")


def _closed_at(path: str, user: tuple[int, int] | None) -> str:
    """Names the first directory on the way that the user cannot pass through."""
    if user is None:
        return ""
    walked = ""
    for part in os.path.dirname(path).split("/")[1:]:
        walked = f"{walked}/{part}"
        try:
            status = os.stat(walked)
        except OSError:
            return ""
        bit = 0o100 if status.st_uid == user[0] else 0o010 if status.st_gid == user[1] else 0o001
        if not status.st_mode & bit:
            return f", because {walked} is closed to user {user[0]}"
    return ""
