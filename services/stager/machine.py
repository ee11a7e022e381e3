"""The machine that jobs run on, where the stager stands on it too."""

import os
import shutil
from collections.abc import Iterator
from typing import Protocol

from shared.backends.local.environment import build


class Machine(Protocol):
    """What can be known of the cluster's own files."""

    path: str
    """PATH of a job that does not set its own."""

    def program(self, name: str, path: str) -> str | None:
        """Where an executable of that name is, None where it is on no directory of `path`."""

    def is_there(self, path: str) -> bool | None:
        """Whether something is at the absolute path; None where that cannot be seen."""

    def is_executable(self, path: str) -> bool | None:
        """Whether the file at the absolute path can be executed; None where that cannot be seen."""

    def programs(self, path: str) -> Iterator[str]:
        """The names on the directories of `path`."""


class ThisMachine:
    """The local backend's machine, which is this one."""

    def __init__(self, path: str | None = None) -> None:
        self.path = path or job_path()

    def program(self, name: str, path: str) -> str | None:
        """As execvp(3) looks it up."""
        return shutil.which(name, path=path)

    def is_there(self, path: str) -> bool | None:
        """Links are followed."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except (OSError, ValueError):
            return None
        return True

    def is_executable(self, path: str) -> bool | None:
        """By anybody: which user the job will be is the backend's matter."""
        try:
            return os.stat(path).st_mode & 0o111 != 0
        except (OSError, ValueError):
            return None

    def programs(self, path: str) -> Iterator[str]:
        """In no order."""
        for folder in path.split(os.pathsep):
            try:
                yield from os.listdir(folder)
            except OSError:
                continue


def job_path() -> str:
    """PATH as the local backend gives it to a job that brings none."""
    return build({}, own={}, attempt_directory="", devices=())["PATH"]
