"""What is refused before launch, with its near match; and above all what is not refused."""

import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from services.stager.checks import NO_FILES, Checked, check, nothing
from services.stager.commands import Module, Script, script_of
from services.stager.listing import Tree
from shared.contracts.spec import JobSpec
from tests.unit.stager.archives import archive, entry, folder, link, listed


class AMachine:
    """A cluster with a few programs."""

    path = "/usr/bin:/bin"
    files = frozenset(
        {f"/usr/bin/{name}" for name in ("python3", "python", "bash", "env", "true", "perl", "cleanup.sh", "torchrun")}
        | {"/bin/sh", "/data/set.py", "/etc/plain"}
    )

    def program(self, name: str, path: str) -> str | None:
        return next((full for part in path.split(":") if (full := f"{part}/{name}") in self.files), None)

    def is_there(self, path: str) -> bool | None:
        return None if path.startswith("/secret/") else path in self.files

    def is_executable(self, path: str) -> bool | None:
        return path != "/etc/plain"

    def programs(self, path: str) -> Iterator[str]:
        for part in path.split(":"):
            yield from (full.rpartition("/")[2] for full in self.files if full.rpartition("/")[0] == part)


SNAPSHOT = "sha256:" + "0" * 64
HEADS = {
    "run.sh": b"#!/bin/sh\necho", "crlf.sh": b"#!/bin/bash\r\necho\r\n", "env.sh": b"#!/usr/bin/env python3\n",
    "noenv.sh": b"#!/usr/bin/env python9\n", "gone.sh": b"#!/opt/gone/python\n", "bare": b"echo 1\n",
    "tool": b"\x7fELF\x02", "arg.sh": b"#!/bin/sh -e\n", "split.sh": b"#!/usr/bin/env -S python9 -u\n",
}  # fmt: skip


def a_tree() -> Tree:
    executables = [entry(name, mode=0o755) for name in HEADS]
    return listed(
        archive(
            *executables, entry("train.py"), entry("src/train_big.py"), entry("data.txt"), entry("plain.sh"),
            folder("pkg"), entry("pkg/__main__.py"), link("latest.sh", "run.sh"), link("broken", "gone"),
            entry("mod.py"),
            entry("hard.sh", kind=tarfile.LNKTYPE, target="run.sh", mode=0), folder("out"),
        )
    )  # fmt: skip


def checked(*command: str, **spec: Any) -> Checked:
    """With the snapshot `a_tree`."""
    what = JobSpec(command=command, snapshot=SNAPSHOT, **spec)
    return check(what, a_tree(), lambda path: HEADS.get(path, b""), AMachine())


def the_finding(*command: str, **spec: Any) -> tuple[str, str, str | None]:
    found = checked(*command, **spec).findings
    assert len(found) == 1, found
    return found[0].code, found[0].message, found[0].near


GOOD = [
    ("python3", "train.py"),
    ("python3", "-u", "-W", "ignore", "-X", "dev", "train.py", "--data", "absent.txt"),
    ("python3", "-Wignore", "./src/../train.py"),
    ("python3", "-c", "import absent.py"),
    ("python3", "-m", "absent.module"),
    ("python3", "-"),
    ("python3",),
    ("python3", "--version"),
    ("python3", "--check-hash-based-pycs", "never.py", "train.py"),
    ("python3", "-Z", "absent.py"),
    ("python3", "ignore"),
    ("python3", "/data/set.py"),
    ("python3", "/secret/unseen.py"),
    ("python3", "./pkg"),
    ("bash", "-c", "absent.sh"),
    ("bash", "-euo", "pipefail", "run.sh"),
    ("bash", "-x", "latest.sh"),
    ("bash", "cleanup.sh"),
    ("bash", "-lc", "./absent.sh"),
    ("bash", "-s", "absent.sh"),
    ("bash", "--rcfile", "absent.sh", "run.sh"),
    ("sh", "--", "run.sh"),
    ("perl", "-Ilib", "-I", "lib/absent", "-e", "1"),
    ("perl", "-ne", "print", "absent.pl"),
    ("env", "python3", "absent.py"),
    ("torchrun", "--nproc", "2", "absent.py"),
    ("true",),
    ("./run.sh",),
    ("./tool", "absent.py"),
    ("./latest.sh",),
    ("./env.sh",),
    ("./arg.sh",),
    ("./split.sh",),
    ("./hard.sh",),
    ("src/../run.sh",),
    ("/usr/bin/python3", "train.py"),
    ("/secret/tool",),
]


@pytest.mark.parametrize("command", GOOD, ids=" ".join)
def test_a_good_job_is_never_refused(command: tuple[str, ...]) -> None:
    assert checked(*command).findings == ()


REFUSED = {
    ("python3", "trian.py"): ("script_not_found", "train.py"),
    ("python3", "-u", "trian.py", "train.py"): ("script_not_found", "train.py"),
    ("python3", "train_big.py"): ("script_not_found", "src/train_big.py"),
    ("/usr/bin/python3.11", "trian.py"): ("script_not_found", "train.py"),
    ("python3", "/data/gone.py"): ("script_not_found", None),
    ("bash", "rnu.sh"): ("script_not_found", "run.sh"),
    ("sh", "./cleanup.sh"): ("script_not_found", None),
    ("bash", "broken/x.sh"): ("script_not_found", None),
    ("./rnu.sh",): ("program_not_found", "run.sh"),
    ("./plain.sh",): ("program_not_executable", None),
    ("./pkg",): ("program_not_executable", None),
    ("./broken",): ("program_not_found", None),
    ("../run.sh",): ("program_not_found", "run.sh"),
    ("./crlf.sh",): ("crlf_interpreter_line", None),
    ("./gone.sh",): ("interpreter_not_found", None),
    ("./noenv.sh",): ("interpreter_not_found", None),
    ("pyhton3", "x"): ("program_not_found", "python3"),
    ("run.sh",): ("program_not_found", "./run.sh"),
    ("no-such-program-here",): ("program_not_found", None),
    ("/usr/bin/pyhton3",): ("program_not_found", "/usr/bin/python3"),
    ("/etc/plain",): ("program_not_executable", None),
}


@pytest.mark.parametrize(("command", "wanted"), REFUSED.items(), ids=[" ".join(command) for command in REFUSED])
def test_a_job_that_cannot_run_is_refused_by_name(command: tuple[str, ...], wanted: tuple[str, str | None]) -> None:
    findings = checked(*command).findings
    found = next(finding for finding in findings if finding.code == wanted[0])
    assert found.near == wanted[1] or (wanted[0] == "script_not_found" and wanted[1] is None)
    assert any(repr(word) in found.message for word in command), found.message
    if wanted[1] is not None:
        assert wanted[1] in found.message
    assert len(found.message) <= 300


def test_all_findings_come_at_once() -> None:
    found = checked("./plain.sh", inputs=("date.txt", "data.txt", "out", "none/at/all"))
    assert [finding.code for finding in found.findings] == ["input_missing", "input_missing", "program_not_executable"]
    assert found.findings[0].near == "data.txt"
    assert "did you mean 'data.txt'" in found.findings[0].message
    assert "chmod +x 'plain.sh'" in found.findings[2].message


def test_not_executable_and_crlf_are_both_said() -> None:
    tree = listed(archive(entry("w.sh", mode=0o644)))
    found = check(JobSpec(command=("./w.sh",), snapshot=SNAPSHOT), tree, lambda _: b"#!/bin/sh\r\n", AMachine())
    assert [finding.code for finding in found.findings] == ["program_not_executable", "crlf_interpreter_line"]


@pytest.mark.parametrize("inputs", [("latest.sh",), ("./data.txt",), ("pkg/",), (".",), ("src/../data.txt",)][:4])
def test_inputs_may_be_files_folders_and_links(inputs: tuple[str, ...]) -> None:
    assert checked("true", inputs=inputs).findings == ()


def test_a_link_to_nothing_is_no_input() -> None:
    code, message, _ = the_finding("true", inputs=("broken",))
    assert code == "input_missing"
    assert "leads to nothing" in message


def test_without_a_directory_nothing_can_be_in_it() -> None:
    spec = JobSpec(command=("python3", "train.py"), inputs=("data.txt",))
    found = check(spec, NO_FILES, nothing, AMachine()).findings
    assert [finding.code for finding in found] == ["input_missing", "script_not_found"]
    assert all("without a directory" in finding.message for finding in found)


def test_what_cannot_be_confirmed_is_a_warning() -> None:
    assert checked("./bare").findings == ()
    assert "names no interpreter" in checked("./bare").warnings[0]
    found = checked("python3", "-m", "mdo")
    assert found.findings == ()
    assert "'mod.py'" in found.warnings[0]


def test_a_path_of_the_jobs_own_is_looked_up() -> None:
    assert checked("python3", "train.py", env={"PATH": "/usr/bin"}).findings == ()
    assert the_finding("python3", "train.py", env={"PATH": "/opt"})[0] == "program_not_found"
    assert checked("run.sh", env={"PATH": ".:/bin"}).findings == (), "it may be found in the working directory"


def test_a_cluster_whose_files_cannot_be_seen_is_not_judged() -> None:
    spec = JobSpec(command=("no-such-program", "x"), snapshot=SNAPSHOT)
    assert check(spec, a_tree(), nothing, None).findings == ()
    refused = check(JobSpec(command=("python", "trian.py"), snapshot=SNAPSHOT), a_tree(), nothing, None).findings
    assert [finding.code for finding in refused] == ["script_not_found"]


def test_expectations_are_refused_rather_than_ignored() -> None:
    assert the_finding("true", expect=("model.bin",))[0] == "not_offered"


def test_a_job_with_an_image_brings_its_own_programs() -> None:
    assert checked("only-in-the-image", image="registry/image:1").findings == ()


def test_odd_names_stay_readable_in_findings() -> None:
    code, message, _ = the_finding("true", inputs=("line\nbreak\x1b[31m",))
    assert code == "input_missing"
    assert r"'line\nbreak\x1b[31m'" in message


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (("python", "-m", "pkg.mod"), Module("pkg.mod")),
        (("python", "-um", "pkg"), Module("pkg")),
        (("python3.12", "-mpkg"), Module("pkg")),
        (("pypy3", "x.py"), Script("x.py", False)),
        (("/bin/dash", "-e", "x/y"), Script("x/y", True)),
        (("node", "x.mjs"), Script("x.mjs", False)),
        (("node", "--require", "./x", "y.js"), None),
        (("cat", "x.py"), None),
        (("python", "-"), None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_finds_the_script_or_module_of(command: tuple[str, ...], found: Script | Module | None) -> None:
    assert script_of(command) == found
