"""Pipelines through the command a person uses: each step in the outputs of those before it, stopped as one."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stacks import Stack, eventually

TRAIN = """
import pathlib
pathlib.Path("model").mkdir()
pathlib.Path("model/weights.txt").write_text("trained")
pathlib.Path("model/log.txt").write_text("train")
pathlib.Path("scratch.txt").write_text("not an output")
print("trained")
"""
EXPORT = """
import pathlib
print("exports", pathlib.Path("model/weights.txt").read_text(), pathlib.Path("notes.txt").read_text().strip())
assert not pathlib.Path("scratch.txt").exists()
pathlib.Path("model/export.txt").write_text("exported")
pathlib.Path("model/log.txt").write_text("export")
tool = pathlib.Path("model/judge.sh")
tool.write_text("#!/bin/sh\\ncat model/weights.txt model/export.txt model/log.txt > model/judged.txt\\n")
tool.chmod(0o755)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of two scripts; the last step's program is made by the step before it."""
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text(TRAIN)
    (made / "export.py").write_text(EXPORT)
    (made / "notes.txt").write_text("as submitted\n")
    return made


def _pipeline(stack: Stack, *words: str, code: int = 0) -> dict[str, Any]:
    """`tidegate submit --wait --json`: the finished pipeline's object."""
    ended = stack.cli("submit", "--wait", "--json", *words)
    assert ended.code == code, ended.out + ended.err
    return dict(ended.json)


def test_each_step_sees_the_submitted_files_and_the_outputs_of_all_before_it(
    stack: Stack, folder: Path, tmp_path: Path
) -> None:
    ended = _pipeline(
        stack, "--name", "train", "--dir", str(folder), "--out", "model/**",
        "--then", "python3 export.py", "--then", "model/judge.sh", "--", "python3", "train.py",
    )  # fmt: skip
    assert (ended["word"], ended["name"]) == ("succeeded", "train")
    assert [step["name"] for step in ended["steps"]] == ["train", "export", "judge.sh"]
    first, second, last = (step["job"] for step in ended["steps"])
    with stack.client() as client:
        assert b"".join(client.logs(second)) == b"exports trained as submitted\n"
        assert {file.path for file in client.outputs(first).files} == {"model/weights.txt", "model/log.txt"}
        (judged,) = (file for file in client.outputs(last).files if file.path == "model/judged.txt")
        got = client.download_output(last, judged, tmp_path / "got", lambda _: None)
    assert got.read_text() == "trainedexportedexport", "of two files of one name the later step's counts"
    shown = stack.cli("show", ended["id"]).out
    assert all(word in shown for word in ("succeeded", "train", "export", first, last))
    assert ended["id"] in stack.cli("pipelines").out
    assert f"2 of {ended['id']}" in stack.cli("ls").out


def test_follows_the_steps_one_by_one_and_says_which_one_failed(stack: Stack) -> None:
    ended = stack.cli(
        "submit", "--no-snapshot", "--name", "first", "--follow",
        "--then", "sh -c 'echo second; exit 4'", "--then", "echo never", "--", "echo", "one",
    )  # fmt: skip
    assert ended.code == 1
    places = [ended.out.index(words) for words in ("step 1/3 first", "| one", "step 2/3 sh", "| second")]
    assert places == sorted(places)
    assert "step 3/3" not in ended.out
    assert "partial: step sh: the command exited with code 4" in ended.err
    assert "step echo was not reached" in ended.err
    assert "what to do: " in ended.err


def test_stops_a_pipeline_as_one(stack: Stack) -> None:
    submitted = stack.cli("submit", "--no-snapshot", "--json", "--then", "echo never", "--", "sleep", "600")
    pipeline = submitted.json["id"]
    step = submitted.json["steps"][0]["job"]
    with stack.client() as client:
        eventually(lambda: client.job(step).state == "RUNNING", "the first step to run")
    stopped = stack.cli("stop", pipeline, "--force")
    assert stopped.code == 0
    assert stopped.out.strip() in (f"{pipeline} running; a stop was asked for: sleep", f"{pipeline} stopped")

    with stack.client() as client:
        eventually(lambda: client.pipeline(pipeline).word == "stopped", "the pipeline to be stopped")
        assert [step.end_reason for step in client.pipeline(pipeline).steps] == ["stopped_by_user"] * 2
    again = stack.cli("stop", pipeline)
    assert (again.code, "it is stopped already" in again.err) == (3, True)


def test_says_what_is_wrong_before_anything_is_sent(stack: Stack, folder: Path) -> None:
    refused = stack.cli("submit", "--dir", str(folder), "--then", "python3 exprot.py", "--", "python3", "train.py")
    assert (refused.code, "export.py?" in refused.err) == (2, True), refused.err
    assert stack.cli("logs", "p" + "0" * 26).code == 2
    missing = stack.cli("stop", "p" + "0" * 26)
    assert (missing.code, "there is no pipeline" in missing.err) == (3, True)
