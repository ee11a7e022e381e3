"""The batch script runs the command exactly as it was ordered, and records how it ended."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shared.backends.slurm.layout import environment_name
from shared.backends.slurm.script import Order, script
from tests.servers import wait_until
from tests.unit.backends.slurm.runs import Attempt, is_running

ALL_BYTES = os.fsdecode(bytes(range(1, 256)))
ODD = [
    "",
    "a b",
    "  two",
    "it's",
    '"q"',
    "$HOME `id` $(id)",
    "-rf",
    "--",
    "a;b&c|d<e>f",
    "*?[x]~#!",
    "tab\tx",
    "line\nbreak\n",
    "cr\r\nlf\r",
    "back\\slash\\\\n\\",
    "café ÿ",
    "a=b",
    ALL_BYTES,
]
SHOW_ARGUMENTS = "import os, sys; open('shown', 'wb').write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
SHOW_ENVIRONMENT = (
    "import os; open('shown', 'wb').write(b'\\0'.join(name + b'=' + value for name, value in os.environb.items()))"
)


def environment_of(attempt: Attempt) -> Mapping[str, str]:
    """What the command saw."""
    pairs = os.fsdecode((attempt.work / "shown").read_bytes()).split("\0")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


@pytest.mark.parametrize("code", [0, 3, 125, 126, 127, 137, 143, 255])
def test_a_code_is_recorded_as_a_code(attempt: Attempt, code: int) -> None:
    assert attempt.run("sh", "-c", f"echo out; echo err >&2; exit {code}") == code
    end = attempt.records().exits[0]
    assert (end.ran, end.code, end.signal, end.reason, end.stop_seen) == (True, code, None, None, None)
    assert (end.run.submission, end.run.slurm_job_id, end.run.restart, end.run.node) == (
        "tidegate.j1.a1.s1",
        "7",
        0,
        "n1",
    )
    assert end.started_at == attempt.records().started[0].started_at
    assert end.started_at is not None
    assert end.ended_at - end.started_at == end.duration
    assert attempt.stdout() == "out\n"
    assert (attempt.directory / "logs" / "stderr").read_text() == "err\n"


@pytest.mark.parametrize("number", [1, 2, 9, 10, 11, 15, 34])
def test_a_signal_is_recorded_as_a_signal_and_shown_to_slurm(attempt: Attempt, number: int) -> None:
    assert attempt.run(sys.executable, "-c", f"import os; os.kill(os.getpid(), {number})") == -number
    end = attempt.records().exits[0]
    assert (end.ran, end.code, end.signal, end.reason) == (True, None, number, None)


def test_arguments_arrive_byte_for_byte(attempt: Attempt) -> None:
    assert attempt.run(sys.executable, "-c", SHOW_ARGUMENTS, *ODD) == 0
    assert os.fsdecode((attempt.work / "shown").read_bytes()).split("\0") == ODD


def test_directories_may_have_any_name(tmp_path: Path, attempt: Attempt) -> None:
    odd = Attempt(tmp_path / "-a 'b'\n$c\\" / "é", attempt.shell, run_name="-r\r\n1 *")
    assert odd.run("sh", "-c", "echo here >here; pwd") == 0
    assert (odd.work / "here").read_text() == "here\n"
    assert odd.stdout() == f"{odd.work}\n"


def test_a_script_holds_nothing_that_sbatch_refuses(attempt: Attempt) -> None:
    text = script(attempt.order(*ODD[1:], "#SBATCH --partition=x\n#SBATCH --hold"))
    assert "\r\n" not in text
    assert "\0" not in text
    assert text.startswith("#!/bin/sh\n")
    # sbatch reads options up to the first line that is no comment.
    assert not text.splitlines()[1].startswith("#")


@pytest.mark.parametrize("program", ["-c", "a=b", "exit", "p q"])
def test_a_program_may_have_any_name(attempt: Attempt, program: str) -> None:
    if attempt.shell == ["dash"] and program == "-c":
        pytest.skip("dash has no way to run it")
    path = attempt.directory / "bin" / program
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho ran\nexit 4\n")
    path.chmod(0o755)
    assert attempt.run(program, environment={"PATH": f"{path.parent}:/usr/bin:/bin"}) == 4
    assert attempt.stdout() == "ran\n"


def test_the_command_sees_what_was_given_what_is_ours_and_what_is_slurms(attempt: Attempt) -> None:
    given = {f"ODD_{number}": text for number, text in enumerate(ODD)}
    # What a shell sets itself or works by.
    given |= {"UID": "x", "OPTIND": "y", "IFS": "abc", "tg_here": "/", "PPID": "z", "_X": "1", "RANDOM": "r"}
    given |= {"HOME": "/nowhere", "TIDEGATE_JOB_ID": "no", "TIDEGATE_RESUME": "1", "CUDA_VISIBLE_DEVICES": "9"}
    given |= {"PATH": "/opt/mine", "LANG": "de_DE.UTF-8", "USER": "me", "LD_LIBRARY_PATH": "/opt/lib"}
    path = attempt.submit(attempt.order(sys.executable, "-c", SHOW_ENVIRONMENT, environment=given))
    slurms = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "u", "SLURM_ODD": ALL_BYTES, "SLURMD_NODENAME": "n1"}
    slurms |= {"CUDA_VISIBLE_DEVICES": "2,3"}
    submitters = {"SECRET": "s", "MULTI": "a\nexport SLURM_X=1\nb", "SLURM_EXPORT_ENV": "NONE", "TMPDIR": "/x"}
    # bash hands on what no variable of it can hold.
    submitters |= {} if attempt.shell[0] == "bash" else {"no-name": "x"}
    submitters |= {"BASH_FUNC_module%%": "() { :; }", "tg_path": "/x", "IFS": "/"}
    assert attempt.end(attempt.start(path, more=slurms | submitters)) == (0, "")
    seen = dict(environment_of(attempt))
    home = str(attempt.directory / "home")
    expected = given | {
        "HOME": home,
        "SHELL": "/bin/sh",
        "LOGNAME": "u",
        "PYTHONUNBUFFERED": "1",
        "TIDEGATE_JOB_ID": "j1",
        "TIDEGATE_RUN_ID": "run1",
        "TIDEGATE_ATTEMPT": "1",
        "TIDEGATE_TENANT": "acme",
        "TIDEGATE_OUTPUT_DIR": str(attempt.work),
        **slurms,
    }
    del expected["TIDEGATE_RESUME"]
    for of_the_shell in ("PWD", "SHLVL", "_", "LC_CTYPE", "TMPDIR"):
        seen.pop(of_the_shell, None)
    assert seen == expected


def test_a_resumed_attempt_without_gpus_sees_that(attempt: Attempt) -> None:
    assert attempt.run(sys.executable, "-c", SHOW_ENVIRONMENT, resumed=True, gpus=0) == 0
    assert environment_of(attempt)["TIDEGATE_RESUME"] == "1"
    assert environment_of(attempt)["CUDA_VISIBLE_DEVICES"] == ""


def test_values_of_the_environment_are_not_in_the_script_and_gone_once_it_runs(attempt: Attempt) -> None:
    order = attempt.order("sh", "-c", f'cat "$HOME/../{environment_name("t1")}"', environment={"KEY": "s3cret"})
    assert "s3cret" not in script(order)
    assert attempt.end(attempt.start(attempt.submit(order)))[0] == 0
    kept = attempt.directory / environment_name("t1")
    assert kept.stat().st_mode & 0o7777 == 0o600
    assert kept.read_bytes() == b""
    assert attempt.stdout() == ""
    for path in attempt.directory.rglob("*"):
        assert path.is_dir() or b"s3cret" not in path.read_bytes()


def test_a_run_without_its_environment_runs_nothing(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order("sh", "-c", "echo ran"))
    (attempt.directory / environment_name("t1")).unlink()
    assert attempt.end(attempt.start(path))[0] == 126
    assert attempt.records().exits[0].reason == "environment_missing"
    assert not (attempt.directory / "logs" / "stdout").exists()


def _plain_file(at: Path) -> str:
    at.write_text("text")
    return str(at)


def _without_interpreter(at: Path) -> str:
    at.write_text("#! /no/such/interpreter -x\n")
    at.chmod(0o755)
    return "./program"


def _directory(at: Path) -> str:
    at.mkdir()
    return str(at)


def _dangling(at: Path) -> str:
    at.symlink_to("/no/such/target")
    return str(at)


@pytest.mark.parametrize("make", [_plain_file, _without_interpreter, _directory, _dangling])
def test_a_program_that_cannot_be_executed_is_told_apart(attempt: Attempt, make: object) -> None:
    assert callable(make)
    assert attempt.run(make(attempt.work / "program")) == 126
    end = attempt.records().exits[0]
    assert (end.ran, end.code, end.reason) == (False, 126, "cannot_execute")


@pytest.mark.parametrize("program", ["no-such-program", "./no-such-program", "/no/such/program", "a/../b", "x=y"])
def test_a_program_that_is_not_there_is_told_apart(attempt: Attempt, program: str) -> None:
    assert attempt.run(program, "x") == 127
    end = attempt.records().exits[0]
    assert (end.ran, end.code, end.reason, end.started_at) == (False, 127, "command_not_found", None)


def test_a_missing_directory_is_told_apart(attempt: Attempt) -> None:
    path = attempt.submit(attempt.order())
    attempt.work.rmdir()
    assert attempt.end(attempt.start(path))[0] == 126
    assert attempt.records().exits[0].reason == "working_directory_missing"


def test_the_command_has_a_group_of_its_own_no_input_and_no_signal_ignored(attempt: Attempt) -> None:
    ignored = "*[n for n in (1, 2, 3, 10, 12, 15) if signal.getsignal(n) == signal.SIG_IGN]"
    show = f"import os, signal; print(os.getpgid(0) == os.getpid(), os.read(0, 1), os.umask(0), {ignored})"
    assert attempt.run(sys.executable, "-c", show) == 0
    assert attempt.stdout() == f"True b'' {0o077}\n"


def test_what_the_command_left_in_its_group_is_ended(attempt: Attempt) -> None:
    assert attempt.run("sh", "-c", "sleep 1000 & echo $! >left; exit 0") == 0
    left = int((attempt.work / "left").read_text())
    wait_until(lambda: not is_running(left), "what it left is ended")


def test_nothing_of_the_runner_is_left(attempt: Attempt) -> None:
    process = attempt.start(attempt.submit(attempt.order("sh", "-c", "exit 3")))
    assert attempt.end(process)[0] == 3
    with pytest.raises(ProcessLookupError):
        wait_until(lambda: os.killpg(process.pid, 0), "its process group is gone")


def test_an_env_that_cannot_restore_signals_is_done_without(tmp_path: Path, attempt: Attempt) -> None:
    old = tmp_path / "bin" / "env"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho unrecognized option >&2\nexit 125\n")
    old.chmod(0o755)
    (old.parent / "setsid").symlink_to("/usr/bin/setsid")
    order = attempt.order("sh", "-c", "echo ran; exit 125")
    attempt.submit(order)
    path = attempt.spool(script(order).replace("in /usr/bin /bin;", f"in {old.parent};"))
    assert attempt.end(attempt.start(path))[0] == 125
    assert attempt.stdout() == "ran\n"


@pytest.mark.parametrize(
    "wrong",
    [
        {"command": ()},
        {"command": ("",)},
        {"command": ("a\0b",)},
        {"token": "a/b"},
        {"directory": "relative"},
        {"environment": {"A-B": "x"}},
        {"environment": {"A": "\0"}},
    ],
)
def test_an_order_that_cannot_be_carried_out_is_refused(attempt: Attempt, wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        attempt.order(**wrong)


def test_one_order_gives_one_script(attempt: Attempt) -> None:
    order: Order = attempt.order("true")
    assert script(order) == script(order)
