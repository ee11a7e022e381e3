"""Whatever goes wrong, a person gets a sentence and the exit code that stands for it."""

import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from services.cli import main, stack
from services.cli.interrupted import says_that_it_goes_on
from services.cli.outputs import folder_name
from shared.backends.local.options import SLOTS_DEFAULT

_JOB = "j" + "0" * 26


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    """Run `tidegate WORDS` in this process; its exit code."""
    monkeypatch.setattr(sys, "argv", ["tidegate", *words])
    monkeypatch.setenv("TIDEGATE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("TIDEGATE_TOKEN", "none")
    with pytest.raises(SystemExit) as end:
        main.main()
    return int(end.value.code or 0)


def test_the_version_is_shown() -> None:
    shown = CliRunner().invoke(main.app, ["--version"])
    assert shown.exit_code == 0
    assert shown.output.startswith("tidegate 0.")


def test_help_of_up_shows_what_happens_without_its_options() -> None:
    shown = CliRunner().invoke(main.app, ["up", "--help"], env={"COLUMNS": "200"}).output
    assert "8420" in shown
    assert "8 virtual ones" in shown
    assert f"[default: ({SLOTS_DEFAULT})]" in shown


def test_a_home_directory_is_refused_as_usage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ended(monkeypatch, "submit", "--dir", str(tmp_path), "--", "true") == main.EXIT_USAGE
    assert "would be sent as a whole" in capsys.readouterr().err


def test_what_cannot_be_packed_is_refused_as_usage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert ended(monkeypatch, "submit", "--dir", str(tmp_path), "--", "true") == main.EXIT_USAGE
    assert "the link 'link'" in capsys.readouterr().err


def test_any_error_of_the_system_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> Path:
        raise PermissionError(13, "Permission denied", "/var/a\x1bb")

    monkeypatch.setenv("TIDEGATE_HOME", "/nowhere")
    monkeypatch.setattr(stack, "home_of", refuse)
    assert ended(monkeypatch, "ps") == main.EXIT_FAILED
    assert capsys.readouterr().err == "error: /var/a\\x1bb: Permission denied\n"


def test_ctrl_c_says_that_the_job_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as end, says_that_it_goes_on(_JOB):
        raise KeyboardInterrupt
    assert end.value.exit_code == 130
    said = capsys.readouterr().err
    assert f"tidegate logs -f {_JOB}" in said
    assert f"tidegate stop {_JOB}" in said


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("train", "train-outputs"),
        ("x/../../evil", "x-..-..-evil-outputs"),
        ("../evil", "evil-outputs"),
        (".hidden", "hidden-outputs"),
        ("/etc", "etc-outputs"),
        ("a\nb \x1b", "a-b---outputs"),
        ("日本", "job-outputs"),
        ("..", "job-outputs"),
    ],
)
def test_the_outputs_folder_is_one_harmless_name(name: str, folder: str) -> None:
    assert folder_name(name) == folder
