"""`submit --then`: a command's words, its step's name, and what could never be there when its turn comes."""

from pathlib import Path

import pytest
import typer

from services.cli.steps import files_can_be_there, name_of, not_read, pipeline_of, split
from shared.contracts.spec import JobSpec, SubmitRequest

FIRST = SubmitRequest(spec=JobSpec(command=("python", "train.py"), gpus=2, outputs=("model/**",)), project="vision")


def test_parts_a_command_as_a_shell_would() -> None:
    assert split("python3 eval.py --title 'a b' \"c\"") == ["python3", "eval.py", "--title", "a b", "c"]
    assert split("sh -c 'a && b > c'") == ["sh", "-c", "a && b > c"]
    assert split("a '&&' \"b;c\" \\; #d --e=1 x'y > z'") == ["a", "&&", "b;c", ";", "#d", "--e=1", "xy > z"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no command"),
        ("  ", "holds no command"),
        ("echo 'x", "No closing quotation"),
        ("a && b", "&& is for a shell"),
        ("a | b", "sh -c "),
        ("a > b", "> is for a shell"),
        ("a 2>b", "> is for a shell"),
        ("cd a; b", "; is for a shell"),
        ("a&", "& is for a shell"),
        ("A=1 b", "A=1 is for a shell"),
    ],
)
def test_refuses_what_no_shell_is_there_for(text: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"^--then ") as refused:
        split(text)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("python eval.py --out $HOME/x", "$HOME"),
        ("python eval.py ${HOME}", "${HOME}"),
        ('echo "$HOME"', "$HOME"),
        ("python eval.py *.json", "*.json"),
        ("python eval.py ~/data", "~/data"),
        ("echo $(date)", "$("),
        ("echo `date`", "`"),
        ('python -c "print(`x`)"', "`"),
    ],
)
def test_refuses_what_only_a_shell_would_put_something_else_for(text: str, word: str) -> None:
    with pytest.raises(typer.BadParameter) as refused:
        split(text)
    assert f": {word} means something to a shell only" in str(refused.value)
    assert "--then 'sh -c \"" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "python eval.py '*.json' '$HOME'",
        'python eval.py "*.json"',
        "sh -c 'echo $HOME *'",
        'sh -c "echo $HOME/*"',
        "/bin/bash -ec 'ls *'",
        "curl http://host/?a=b",
        "echo 5$ a~b x=[1,2]",
        "echo \\$HOME \\*",
    ],
)
def test_takes_what_is_quoted_or_means_nothing_to_a_shell(text: str) -> None:
    assert split(text)


def test_a_then_after_the_dashes_is_told() -> None:
    assert not_read(["python", "train.py"]) is None
    for words in (["python", "a.py", "--then", "b"], ["python", "a.py", "--then=b"]):
        assert "put it before" in (not_read(words) or "")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python3.11", "src/export.py", "--x"], "export"),
        (["/usr/bin/python", "train.py"], "train"),
        (["python", "-m", "pkg.mod"], "python"),
        (["sh", "-c", "x"], "sh"),
        (["bash", "run"], "bash"),
        (["./model/judge.sh"], "judge.sh"),
        (["echo", "a.py"], "echo"),
    ],
)
def test_names_a_step_after_its_script_or_program(command: list[str], name: str) -> None:
    assert name_of(command) == name


def test_the_later_steps_have_the_options_of_the_first_and_names_of_their_own() -> None:
    made = pipeline_of(FIRST, [["python", "export.py"], ["python", "lib/export.py"]])
    assert [step.name for step in made.steps] == ["train", "export", "export-2"]
    assert made.name == "train"
    assert [step.spec.command[-1] for step in made.steps] == ["train.py", "export.py", "lib/export.py"]
    assert {(step.spec.gpus, step.spec.outputs, step.project) for step in made.steps} == {(2, ("model/**",), "vision")}


def test_every_step_has_the_limits_of_the_first() -> None:
    spec = JobSpec(command=("a",), time_limit_seconds=60, checkpoint_signal="USR1")
    made = pipeline_of(SubmitRequest(spec=spec, retries=2), [["b"]])
    assert {(step.spec.time_limit_seconds, step.spec.checkpoint_signal, step.retries) for step in made.steps} == {
        (60, "USR1", 2)
    }


def test_refuses_more_steps_than_a_pipeline_has() -> None:
    with pytest.raises(typer.BadParameter, match=r"was given 20 times; a pipeline has at most 20 steps"):
        pipeline_of(FIRST, [["true"]] * 20)


@pytest.mark.parametrize("outputs", ["build/**", "build", "**/*.sh", "build/*.sh", ".", "**", "build/**/run.sh", "b*/"])
def test_a_file_that_an_output_may_name_may_come_from_an_earlier_step(tmp_path: Path, outputs: str) -> None:
    files_can_be_there([["./build/run.sh"], ["sh", "build/run.sh"]], tmp_path, [outputs])
    files_can_be_there([["./build/run.sh"]], None, [outputs])


@pytest.mark.parametrize("command", [["python", "eval.py"], ["./run"], ["/bin/x"], ["true"], ["python", "-m", "x.py"]])
def test_a_file_that_is_submitted_or_cannot_be_judged_is_no_concern(tmp_path: Path, command: list[str]) -> None:
    for name in ("eval.py", "run"):
        (tmp_path / name).touch()
    files_can_be_there([command], tmp_path, [])


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["python", "exprot.py"], "there is no exprot.py; did you mean export.py?"),
        (["python", "src/x.py"], "there is no src/x.py; no --out names it either"),
        (["./export.pi"], "did you mean export.py?"),
    ],
)
def test_refuses_a_file_that_can_never_be_there(tmp_path: Path, command: list[str], said: str) -> None:
    (tmp_path / "export.py").touch()
    with pytest.raises(typer.BadParameter) as refused:
        files_can_be_there([command], tmp_path, ["model/**"])
    assert said in str(refused.value)
