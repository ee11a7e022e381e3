"""What a person sees of the command line: streams, pages, JSON, exit codes, and errors that help."""

import json
import signal
import subprocess
import threading
import time
from pathlib import Path

from shared.runtime.failpoints import POINTS
from tests.e2e.stacks import TIDEGATE, Stack, eventually
from tests.patience import PATIENCE_SECONDS


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


def test_a_log_is_byte_exact_in_a_pipe_and_escaped_on_a_terminal(stack: Stack) -> None:
    job = stack.run("printf", "\\033[2Ja\\tb\\r\\n")["id"]
    assert stack.cli("logs", job).out == "\x1b[2Ja\tb\n"  # \r\n, read as text
    assert stack.on_a_terminal("logs", job).replace("\r\n", "\n") == "\\x1b[2Ja\tb\\r\n"


def test_log_lines_of_a_short_job_come_before_its_end(stack: Stack) -> None:
    lines = stack.cli("submit", "--no-snapshot", "--follow", "--", "echo", "short").out.splitlines()
    said = [line.strip()[:10] for line in lines]
    assert said.index("| short") < said.index("✓ stopping")
    over = [line.strip()[:18] for line in lines if line.strip()[0] in "✓✗"]
    assert len(over) == len(set(over)) == 5


def test_ctrl_c_says_that_the_job_goes_on(stack: Stack) -> None:
    child = stack.start("submit", "--no-snapshot", "--follow", "--", "sh", "-c", "echo started; sleep 600")
    assert child.stdout is not None
    job = child.stdout.readline().split()[-1]
    assert any("| started" in line for line in child.stdout)
    eventually(lambda: stack.client().job(job).state == "RUNNING", "the api to know that it runs")
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == 130
    assert f"tidegate logs -f {job}" in said
    assert f"tidegate stop {job}" in said
    stopped = stack.cli("stop", "--force", job)
    assert stopped.out.startswith(f"{job} RUNNING; a stop was asked for"), stopped.err


def test_a_reader_that_goes_away_is_no_failure_of_the_job(stack: Stack, gate: Path) -> None:
    waits = f"while [ ! -e {gate} ]; do sleep 0.05; done"
    child = stack.start("submit", "--no-snapshot", "--wait", "--", "sh", "-c", waits)
    assert child.stdout is not None
    child.stdout.readline()
    child.stdout.close()
    gate.touch()
    assert child.stderr is not None
    assert child.stderr.read() == ""
    assert child.wait(PATIENCE_SECONDS) == 141


def test_hold_and_release_say_what_happened(stack: Stack) -> None:
    words = ("submit", "--no-snapshot", "--json", "--gpus", "8", "--", "sleep", "600")
    running, job = stack.cli(*words).json["id"], stack.cli(*words).json["id"]
    try:
        assert stack.cli("hold", job, "--reason", "not now").out == f"{job} QUEUED; held: not now\n"
        assert stack.cli("release", job).out == f"{job} QUEUED; released\n"
        listed = stack.cli("ls").out.splitlines()
        assert listed[0].endswith("WAITS ON / WHY")
        assert not any(line.endswith(" ") for line in listed)
    finally:
        for one in (job, running):
            stack.cli("stop", "--force", one)


def test_ls_on_a_terminal_of_80_columns_shows_ids_and_states_whole(stack: Stack) -> None:
    job = stack.run("sh", "-c", "exit 3", options=("--name", "a-name-that-is-longer-than-its-column"))["id"]
    lines = stack.on_a_terminal("ls").splitlines()
    shown = next(line for line in lines if line.startswith(job))
    assert " FAILED " in shown
    assert shown.rstrip().endswith("…")
    assert max(len(line) for line in lines) <= 80


def test_events_of_all_jobs_name_the_job(stack: Stack) -> None:
    child = stack.start("events", "--follow")
    try:
        assert child.stdout is not None
        output = child.stdout
        seen: list[str] = []
        ran: list[str] = []
        threading.Thread(target=lambda: seen.extend(iter(output.readline, "")), daemon=True).start()

        def a_job_is_named() -> bool:
            """It follows from the moment in which it has connected, so the first jobs may have ended before."""
            ran.append(stack.run("true")["id"])
            return any(line.startswith(tuple(f"{job}  " for job in ran)) for line in list(seen))

        eventually(a_job_is_named, "an event of one of the jobs")
    finally:
        child.terminate()
        child.wait(PATIENCE_SECONDS)


def test_an_output_of_any_name_is_fetched(stack: Stack, tmp_path: Path) -> None:
    names = ["a\nb", "a\n", "a\rb", "a b%0A?#", "sub/x\ny", "日" * 85]
    script = "import os\nos.mkdir('sub')\n" + "".join(f"open({name!r}, 'w').write({name!r})\n" for name in names)
    job = stack.run("python3", "-c", script, options=("--out", "**"))
    assert job["state"] == "SUCCEEDED", job["message"]
    got = stack.cli("outputs", "get", job["id"], "--to", str(tmp_path / "got"))
    assert got.code == 0, got.err
    assert [(tmp_path / "got" / name).read_bytes().decode() for name in names] == names
    assert not list((tmp_path / "got").glob(".*"))
    assert f"{tmp_path}/got/a\\nb\n" in got.out
    assert "a\\nb" in stack.cli("outputs", job["id"]).out


def test_outputs_that_cannot_be_written_say_so(stack: Stack, tmp_path: Path) -> None:
    job = stack.run("sh", "-c", "echo x > x", options=("--out", "x"))["id"]
    (tmp_path / "file").write_text("")
    refused = stack.cli("outputs", "get", job, "--to", str(tmp_path / "file"))
    assert (refused.code, "is not a folder" in refused.err) == (2, True), refused.err
    refused = stack.cli("outputs", "get", job, "--to", str(tmp_path / "file" / "below"))
    assert (refused.code, "cannot be written" in refused.err) == (1, True), refused.err
    assert "Traceback" not in refused.err


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


def test_logs_follow_a_job_that_runs(stack: Stack, gate: Path) -> None:
    script = f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two"
    job = stack.cli("submit", "--no-snapshot", "--json", "--", "sh", "-c", script).json
    child = stack.start("logs", "-f", job["id"])
    assert child.stdout is not None
    assert child.stdout.readline() == "one\n"
    gate.touch()
    assert child.communicate(timeout=PATIENCE_SECONDS)[0] == "two\n"
    assert stack.cli("logs", "-f", job["id"]).out == "one\ntwo\n", "what has ended is followed to its end"


def test_an_unknown_job_is_refused_with_exit_code_3(stack: Stack) -> None:
    ended = stack.cli("show", "j" + "0" * 26)
    assert ended.code == 3
    assert "Traceback" not in ended.err


def test_a_word_that_is_no_id_is_a_usage_error(stack: Stack) -> None:
    ended = stack.cli("show", "../../etc/passwd")
    assert ended.code == 2
    assert "is no id" in ended.err


def test_no_server_gives_exit_code_4_and_says_how_to_start_one(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    ended = subprocess.run(
        [TIDEGATE, "ls"], env=environ, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert ended.returncode == 4
    assert "tidegate up --detach" in ended.stderr


def test_a_quota_is_set_shown_and_holds(stack: Stack) -> None:
    tenant = stack.client().call("GET", "/v1/whoami")["tenant"]
    try:
        answer = stack.cli("quota", "set", tenant, "--gpus", "4", "--json")
        assert answer.code == 0, answer.err
        assert stack.cli("quota", "get", tenant, "--json").json["gpus"] == 4
        assert "4" in stack.refused("submit", "--no-snapshot", "--gpus", "5", "--", "true")
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


def test_orphans_and_failpoints_are_listed(stack: Stack) -> None:
    assert stack.cli("admin", "orphans").out == "no orphans\n"
    assert stack.cli("admin", "orphans", "--json").json == {"items": [], "total": 0}
    assert stack.cli("admin", "failpoints").out.splitlines()[0].split()[0] == "commit.before"
    assert {point["name"] for point in stack.cli("admin", "failpoints", "--json").json} == set(POINTS)


def test_a_second_up_says_so_and_harms_nothing(stack: Stack) -> None:
    before = {name: row["pid"] for name, row in stack.processes().items()}
    assert stack.cli("up", "--detach").code == 0
    time.sleep(0.2)
    assert {name: row["pid"] for name, row in stack.processes().items()} == before
