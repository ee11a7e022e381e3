"""What a person sees of the command line: streams, pages, JSON, exit codes, and errors that help."""

import json
import subprocess
import time
from pathlib import Path

from tests.e2e.stacks import TIDEGATE, Stack


def test_follow_prints_stages_and_log_lines_in_plain_text_when_piped(stack: Stack, project: Path) -> None:
    ended = stack.cli("submit", "--name", "train", "--follow", "--", "python3", "train.py", cwd=project)
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    for words in ("queued", "validating input", "starting cluster", "running job", "stopping cluster"):
        assert f"✓ {words}" in ended.out
    assert "    | learned from forty-two\n" in ended.out


def test_show_marks_the_five_stages_and_names_the_failure(stack: Stack) -> None:
    job = stack.run("sh", "-c", "exit 3")
    shown = stack.cli("show", job["id"]).out
    assert "✗ running job" in shown
    assert "exited with code 3" in shown
    assert f"tidegate logs {job['id']}" in shown


def test_a_hostile_log_cannot_drive_the_terminal(stack: Stack) -> None:
    ended = stack.cli("submit", "--no-snapshot", "--follow", "--", "printf", "\\033]0;owned\\007\\n")
    assert "\x1b" not in ended.out
    assert "owned" in ended.out


def test_events_are_the_log_in_order_and_a_stream_ends_with_the_job(stack: Stack) -> None:
    job = stack.run("true")
    lines = stack.cli("events", "--follow", "--json", job["id"]).out.splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["job"]["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[0]["type"] == "queued"
    assert events[-1]["type"] == "succeeded"


def test_the_same_directory_is_sent_once(stack: Stack, project: Path) -> None:
    first = stack.submit("--", "true", cwd=project)
    second = stack.submit("--", "true", cwd=project)
    assert first["spec"]["snapshot"] == second["spec"]["snapshot"]
    blobs = list((stack.home / "blobs").rglob(f"*{first['spec']['snapshot'].removeprefix('sha256:')}*"))
    assert len(blobs) == 1


def test_logs_follow_a_job_that_runs(stack: Stack) -> None:
    job = stack.cli("submit", "--no-snapshot", "--json", "--", "sh", "-c", "echo one; sleep 0.5; echo two").json
    assert stack.cli("logs", "-f", job["id"]).out == "one\ntwo\n"


def test_an_unknown_job_is_refused_with_exit_code_3(stack: Stack) -> None:
    ended = stack.cli("show", "j" + "0" * 26)
    assert ended.code == 3
    assert "Traceback" not in ended.err


def test_a_word_that_is_no_id_is_a_usage_error(stack: Stack) -> None:
    ended = stack.cli("show", "../../etc/passwd")
    assert ended.code == 2
    assert "not a job id" in ended.err


def test_no_server_gives_exit_code_4_and_says_how_to_start_one(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run([TIDEGATE, "ls"], env=environ, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 4
    assert "tidegate up --detach" in ended.stderr


def test_a_quota_is_set_shown_and_holds(stack: Stack) -> None:
    tenant = stack.client().call("GET", "/v1/whoami")["tenant"]
    try:
        answer = stack.cli("quota", "set", tenant, "--gpus", "4", "--json")
        assert answer.code == 0, answer.err
        assert stack.cli("quota", "get", tenant, "--json").json["gpus"] == 4
        refused = stack.cli("submit", "--no-snapshot", "--gpus", "5", "--", "true")
        assert refused.code == 3
        assert "4" in refused.err
    finally:
        assert stack.cli("quota", "set", tenant, "--gpus", "none").code == 0


def test_a_wrong_option_says_what_is_right(stack: Stack) -> None:
    for words, right in (
        (("submit", "--no-snapshot", "--env", "1X=2", "--", "true"), "environment name"),
        (("submit", "--no-snapshot", "--env", "X", "--", "true"), "NAME=VALUE"),
        (("quota", "set", "acme", "--gpus", "many"), "whole number"),
        (("usage", "--by", "moon"), "tenant, user or job"),
    ):
        ended = stack.cli(*words)
        assert ended.code == 2, words
        assert right in " ".join(ended.err.split()), words


def test_ps_lists_every_service_with_its_pid(stack: Stack) -> None:
    names = set(stack.processes())
    assert {"api", "gatekeeper", "stager", "launcher", "watcher", "metering", "postgres", "nats"} <= names
    assert all(row["pid"] for row in stack.processes().values())


def test_dead_letters_are_listed(stack: Stack) -> None:
    assert stack.cli("dead-letters", "ls", "--json").json["items"] == []


def test_a_second_up_says_so_and_harms_nothing(stack: Stack) -> None:
    before = {name: row["pid"] for name, row in stack.processes().items()}
    assert stack.cli("up", "--detach").code == 0
    time.sleep(0.2)
    assert {name: row["pid"] for name, row in stack.processes().items()} == before
