"""Is the input right? Inputs, program and script against the snapshot and the machine, before anything is launched.

Refused is only what is confirmed: the job could not have run. What cannot be known is a warning, or nothing.
"""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from services.stager.commands import Module, Script, script_of
from services.stager.listing import Member, Tree
from services.stager.machine import Machine
from services.stager.nearness import near_path, near_word
from services.stager.tar import Kind
from shared.contracts.snapshot import shown
from shared.contracts.spec import JobSpec
from shared.lifecycle.facts import Finding

_MAX_FINDINGS: Final = 20
_CHMOD: Final = "chmod +x"


@dataclass(frozen=True, slots=True)
class Checked:
    """All findings at once. With none, the job may start; warnings say what could not be confirmed."""

    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]


def check(
    spec: JobSpec, tree: Tree, head: Callable[[str], bytes], machine: Machine | None, *, near: bool = True
) -> Checked:
    """Check a spec. `tree` is what was submitted (empty without a snapshot), `head` gives the first bytes of a file in
    it; `machine` is None where the cluster's files cannot be seen from here. Without `near` no near matches are looked
    for, which takes time."""
    own_files = spec.image is not None  # an image brings programs of its own
    checking = _Checking(spec, tree, head, None if own_files else machine, near)
    checking.expectations()
    checking.inputs()
    checking.program()
    checking.script()
    return Checked(tuple(checking.findings[:_MAX_FINDINGS]), tuple(checking.warnings))


class _Checking:
    def __init__(
        self, spec: JobSpec, tree: Tree, head: Callable[[str], bytes], machine: Machine | None, near: bool
    ) -> None:
        self._spec = spec
        self._tree = tree
        self._head = head
        self._machine = machine
        self._near = near
        self.findings: list[Finding] = []
        self.warnings: list[str] = []

    def expectations(self) -> None:
        """Better refused than ignored: a job that exits 0 without a result would be called a success."""
        if self._spec.expect:
            said = "expectations are not checked by this version: leave out `expect`, or test the result in the command"
            self.findings.append(Finding(code="not_offered", place="expect", message=said))

    def inputs(self) -> None:
        for path in self._spec.inputs:
            if self._tree.at(path) is None:
                self._absent("input_missing", f"inputs: {shown(path)}", f"the input {shown(path)}", path)

    def program(self) -> None:
        program = self._spec.command[0]
        place = f"command: {shown(program)}"
        if "/" not in program:
            self._program_by_name(program, place)
        elif program.startswith("/"):
            self._program_of_machine(program, place)
        elif (found := self._tree.at(program)) is None:
            self._absent("program_not_found", place, f"the program {shown(program)}", program)
        else:
            self._program_of_snapshot(program, place, *found)

    def script(self) -> None:
        match script_of(self._spec.command):
            case Script(path, searches_path):
                self._script(path, searches_path)
            case Module(name):
                self._module(name)

    def _program_by_name(self, program: str, place: str) -> None:
        if self._machine is None:
            return
        path = self._path()
        if any(not folder.startswith("/") for folder in path.split(":")):
            return  # relative to the working directory: it may well be in there
        if self._machine.program(program, path) is not None:
            return
        own = self._tree.at(program)
        if own is not None and own[1].kind is Kind.FILE:
            near = f"./{program}"
            said = f"the program {shown(program)} is not on the cluster's PATH; to run your own file, give it as {near}"
        else:
            near = self._near_word(program, path) or ""
            instead = (
                f"; did you mean {shown(near)}?" if near else ": give one that is, or a file of your own as ./NAME"
            )
            said = f"the program {shown(program)} was not found on the cluster's PATH{instead}"
        self.findings.append(Finding(code="program_not_found", place=place, message=said, near=near or None))

    def _program_of_machine(self, program: str, place: str) -> None:
        if self._machine is None:
            return
        if self._machine.is_there(program) is False:
            folder, name = posixpath.split(program)
            near = self._near_word(name, folder)
            instead = f"; did you mean {shown(f'{folder}/{near}')}?" if near else ""
            said = f"the program {shown(program)} is not on the cluster{instead or ': check its path'}"
            self.findings.append(
                Finding(code="program_not_found", place=place, message=said, near=near and f"{folder}/{near}")
            )
        elif self._machine.is_executable(program) is False:
            said = f"the program {shown(program)} is not executable on the cluster: ask for {_CHMOD} {program}"
            self.findings.append(Finding(code="program_not_executable", place=place, message=said))

    def _program_of_snapshot(self, program: str, place: str, path: str, member: Member) -> None:
        if member.kind is not Kind.FILE and member.kind is not Kind.HARD_LINK:
            said = f"the program {shown(program)} is a folder: give the file in it that is to run"
            self.findings.append(Finding(code="program_not_executable", place=place, message=said))
            return
        if not member.mode & 0o100:
            said = f"the program {shown(program)} is not executable: {_CHMOD} {shown(path)} and submit again"
            self.findings.append(Finding(code="program_not_executable", place=place, message=said))
        self._first_line(program, place, self._head(path))

    def _first_line(self, program: str, place: str, head: bytes) -> None:
        if head.startswith(b"\x7fELF"):
            return
        line, newline, _ = head.partition(b"\n")
        if not line.startswith(b"#!"):
            self.warnings.append(f"{shown(program)} names no interpreter in a first line such as #!/bin/sh")
        elif newline and line.endswith(b"\r"):
            said = (
                f"the first line of {shown(program)} ends in a carriage return (Windows line ends), so that no system "
                f"finds its interpreter: convert it (sed -i 's/\\r$//' {path_word(program)}) and submit again"
            )
            self.findings.append(Finding(code="crlf_interpreter_line", place=place, message=said))
        elif newline:
            self._interpreter(program, place, line[2:].split())

    def _interpreter(self, program: str, place: str, words: list[bytes]) -> None:
        texts = [word.decode("utf-8", "surrogateescape") for word in words]
        if self._machine is None or not texts or not texts[0].startswith("/"):
            return
        missing = None
        if self._machine.is_there(texts[0]) is False:
            missing = texts[0]
        elif posixpath.basename(texts[0]) == "env" and len(texts) == 2 and not texts[1].startswith("-"):
            path = self._path()
            if "/" not in texts[1] and "=" not in texts[1] and all(part.startswith("/") for part in path.split(":")):
                missing = None if self._machine.program(texts[1], path) else texts[1]
        if missing is not None:
            said = (
                f"{shown(program)} asks in its first line for the interpreter {shown(missing)}, which is not on the "
                f"cluster: correct that line"
            )
            self.findings.append(Finding(code="interpreter_not_found", place=place, message=said))

    def _script(self, path: str, searches_path: bool) -> None:
        place, what = f"command: {shown(path)}", f"the script {shown(path)}"
        if path.startswith("/"):
            if self._machine is not None and self._machine.is_there(path) is False:
                said = f"{what} is not on the cluster: give a path inside the submitted directory"
                self.findings.append(Finding(code="script_not_found", place=place, message=said))
            return
        if self._tree.at(path) is not None:
            return
        if searches_path and "/" not in path and not self._is_nowhere_on_path(path):
            return
        self._absent("script_not_found", place, what, path)

    def _is_nowhere_on_path(self, name: str) -> bool:
        """A shell looks there too, and also takes a file that is not executable."""
        if self._machine is None:
            return False
        folders = self._path().split(":")
        return all(folder.startswith("/") and self._machine.is_there(f"{folder}/{name}") is False for folder in folders)

    def _module(self, name: str) -> None:
        path = name.replace(".", "/")
        names = [f"{path}.py", path]
        if any(self._tree.at(candidate) is not None for candidate in names):
            return
        near = self._near_path(names[0])
        if near is not None:
            self.warnings.append(
                f"the module {shown(name)} is not in the submitted directory ({shown(near)} is); it may be installed"
            )

    def _absent(self, code: str, place: str, what: str, path: str) -> None:
        if not self._tree.members and self._spec.snapshot is None:
            said = f"{what} cannot be there: the job was submitted without a directory"
            self.findings.append(Finding(code=code, place=place, message=said))
            return
        is_dead_link = posixpath.normpath(path) in self._tree.members
        near = None if is_dead_link else self._near_path(path)
        if is_dead_link:
            said = f"{what} is a link in the submitted directory that leads to nothing in it"
        elif near is not None:
            said = f"{what} is not in the submitted directory; did you mean {shown(near)}?"
        else:
            said = f"{what} is not in the submitted directory: check its spelling, and what .tidegateignore leaves out"
        self.findings.append(Finding(code=code, place=place, message=said, near=near))

    def _near_word(self, name: str, path: str) -> str | None:
        assert self._machine is not None
        return near_word(name, self._machine.programs(path)) if self._near else None

    def _near_path(self, path: str) -> str | None:
        return near_path(path, self._tree.members) if self._near else None

    def _path(self) -> str:
        assert self._machine is not None
        return self._spec.env.get("PATH", self._machine.path)


def path_word(path: str) -> str:
    """A path as it is typed in a shell, where that needs no thought."""
    return path if path.replace("/", "").replace(".", "").replace("_", "").replace("-", "").isalnum() else shown(path)


def nothing(_: str) -> bytes:
    """The `head` of a job without a snapshot."""
    return b""


NO_FILES: Final = Tree()
"""What a job without a snapshot has."""
