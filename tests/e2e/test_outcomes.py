"""How jobs end, each through the command line on the real stack."""

import time
from pathlib import Path

from tests.e2e.stacks import TERMINAL, Stack, eventually, processes_with
from tests.patience import PATIENCE_SECONDS


def test_a_command_that_exits_0_succeeds_and_has_passed_five_stages(stack: Stack) -> None:
    job = stack.run("true")
    assert (job["state"], job["end_reason"], job["exit"]["code"]) == ("SUCCEEDED", "succeeded", 0)
    assert [stage["status"] for stage in job["stages"]] == ["passed"] * 5
    assert job["holds_gpus"] is False
    assert job["occupies_slot"] is False


def test_a_command_that_exits_3_fails_with_its_code(stack: Stack) -> None:
    ended = stack.cli("submit", "--no-snapshot", "--wait", "--", "sh", "-c", "exit 3")
    assert ended.code == 1
    assert "exited with code 3" in ended.err
    job = stack.run("sh", "-c", "exit 3")
    assert (job["state"], job["end_reason"], job["exit"]["code"]) == ("FAILED", "exit_nonzero", 3)
    assert job["failed_stage"] == "running_job"


def test_a_command_killed_by_a_signal_fails_with_the_signal(stack: Stack) -> None:
    job = stack.run("sh", "-c", "kill -9 $$")
    assert (job["state"], job["end_reason"]) == ("FAILED", "killed_by_signal")
    assert (job["exit"]["signal"], job["exit"]["code"]) == (9, None)
    assert "SIGKILL" in job["message"]


def test_a_job_runs_in_a_copy_of_the_submitted_directory(stack: Stack, project: Path) -> None:
    job = stack.submit("--", "python3", "train.py", cwd=project)
    assert job["state"] == "SUCCEEDED", job["message"]
    assert stack.cli("logs", job["id"]).out == "learned from forty-two\n"
    again = stack.submit("--", "./run.sh", cwd=project)
    assert again["state"] == "SUCCEEDED", again["message"]
    assert stack.cli("logs", again["id"]).out == "ran 1\n"
    assert again["spec"]["snapshot"] == job["spec"]["snapshot"]


def test_outputs_cannot_be_named_outside_of_the_working_directory(stack: Stack) -> None:
    for pattern in ("../elsewhere/**", "/etc/passwd"):
        ended = stack.cli("submit", "--no-snapshot", "--out", pattern, "--", "true")
        assert ended.code == 2
        assert "leads out of the job's directory" in ended.err


def test_a_command_that_does_not_exist_is_named(stack: Stack) -> None:
    job = stack.run("no-such-program-here")
    assert job["state"] == "FAILED"
    assert job["end_reason"] in ("command_not_found", "input_invalid")
    assert "no-such-program-here" in job["message"]


def test_a_missing_input_ends_in_validating_input(stack: Stack, project: Path) -> None:
    job = stack.submit("--in", "date.txt", "--", "python3", "train.py", cwd=project)
    assert (job["state"], job["end_reason"], job["failed_stage"]) == ("FAILED", "input_invalid", "validating_input")
    assert "date.txt" in job["message"]
    assert "data.txt" in job["message"], "the near match is named"
    assert job["started_at"] is None


def test_a_typo_in_the_scripts_name_starts_no_process(stack: Stack, project: Path) -> None:
    job = stack.submit("--", "python3", "trian.py", cwd=project)
    assert (job["state"], job["failed_stage"]) == ("FAILED", "validating_input")
    assert "trian.py" in job["message"]
    assert "train.py" in job["message"], "the near match is named"
    assert [stage["status"] for stage in job["stages"]] == ["passed", "failed", "skipped", "skipped", "skipped"]
    assert (job["started_at"], job["backend"]["ref"], job["gpu_seconds"]) == (None, None, "0.000")
    events = stack.client().call("GET", f"/v1/jobs/{job['id']}/events")["items"]
    assert not {"pending", "running"} & {event["type"] for event in events}


def test_a_job_of_ten_milliseconds_that_nobody_saw_running_is_metered(stack: Stack) -> None:
    asked = time.monotonic()
    job = stack.run("sleep", "0.01", options=("--gpus", "1"))
    took = time.monotonic() - asked
    assert (job["state"], job["exit"]["code"]) == ("SUCCEEDED", 0)
    seconds = float(job["gpu_seconds"])
    assert 0.01 <= seconds < took
    segment = job["attempts"][-1]["segments"][0]
    assert segment["gpu_milliseconds"] == round(seconds * 1000)
    rows = _usage_rows(stack, job["id"])
    assert [row["gpu_milliseconds"] for row in rows] == [segment["gpu_milliseconds"]]

    def adds_up() -> bool:
        """Whatever else runs in this stack meanwhile."""
        sums = [
            sum(row["gpu_milliseconds"] for row in stack.cli("usage", "--by", by, "--json").json["rows"])
            for by in ("tenant", "user", "job")
        ]
        return sums[0] >= segment["gpu_milliseconds"] and len(set(sums)) == 1

    eventually(adds_up, "usage to add up to the same by tenant, user and job")


def _usage_rows(stack: Stack, job: str) -> list[dict[str, int]]:
    """Metering reads the same events, a moment later."""
    answer: dict[str, list[dict[str, int]]] = {"rows": []}

    def metered() -> bool:
        answer.update(stack.cli("usage", "--by", "job", "--job", job, "--json").json)
        return bool(answer["rows"])

    eventually(metered, "metering to count the job")
    return answer["rows"]


def test_declared_outputs_that_are_absent_fail_the_job_by_name(stack: Stack) -> None:
    job = stack.run("true", options=("--out", "model/**"))
    assert (job["state"], job["end_reason"], job["failed_stage"]) == ("FAILED", "outputs_missing", "stopping_cluster")
    assert "model/**" in job["message"]
    assert job["exit"]["code"] == 0


def test_outputs_come_back_verified(stack: Stack, tmp_path: Path) -> None:
    script = "mkdir -p model/empty && printf abc > model/a && : > model/b && chmod 600 model/a"
    job = stack.run("sh", "-c", script, options=("--out", "model/**"))
    assert job["state"] == "SUCCEEDED", job["message"]
    ended = stack.cli("outputs", "get", job["id"], "--to", str(tmp_path / "got"))
    assert ended.code == 0, ended.err
    assert (tmp_path / "got/model/a").read_text() == "abc"
    assert (tmp_path / "got/model/a").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "got/model/b").read_bytes() == b""
    assert (tmp_path / "got/model/empty").is_dir()
    assert not list((tmp_path / "got").rglob("*.part"))


def test_a_failed_jobs_outputs_come_back_too(stack: Stack, tmp_path: Path) -> None:
    job = stack.run("sh", "-c", "echo half > log.txt; exit 5", options=("--out", "log.txt"))
    assert (job["state"], job["exit"]["code"]) == ("FAILED", 5)
    assert stack.cli("outputs", "get", job["id"], "--to", str(tmp_path / "got")).code == 0
    assert (tmp_path / "got/log.txt").read_text() == "half\n"


def test_more_gpus_than_the_ceiling_are_refused_at_submit(stack: Stack) -> None:
    said = stack.refused("submit", "--no-snapshot", "--name", "too-large", "--gpus", "9", "--", "true")
    assert "9" in said
    assert "8" in said
    made = stack.client().call("GET", "/v1/jobs", params={"name": "too-large"})["items"]
    assert {job["state"] for job in made} <= {"STOPPED"}, "nothing is left of one that nobody could check in time"


def test_nothing_of_a_job_survives_it_not_even_a_daemon(stack: Stack) -> None:
    marker = f"86400.{time.time_ns()}"
    daemon = f"setsid sh -c 'setsid sleep {marker} & touch up' & while [ ! -e up ]; do sleep 0.05; done"
    job = stack.run("sh", "-c", daemon)
    assert job["state"] == "SUCCEEDED", job["message"]
    assert processes_with(marker) == []


def test_a_waiting_job_says_what_it_waits_for_with_the_numbers(stack: Stack) -> None:
    first = stack.cli("submit", "--no-snapshot", "--gpus", "8", "--json", "--", "sleep", "600").json
    client = stack.client()
    eventually(lambda: client.job(first["id"]).state == "RUNNING", "the first to hold all GPUs")
    second = stack.cli("submit", "--no-snapshot", "--gpus", "2", "--json", "--", "true").json
    eventually(lambda: client.job(second["id"]).gate is not None, "the gate to be named")
    waiting = client.job(second["id"])
    assert waiting.gate is not None
    assert waiting.state == "QUEUED"
    assert waiting.gate.name in ("quota.gpus", "capacity")
    assert (waiting.gate.need, waiting.gate.have) == (2, 0)
    assert waiting.gate.reason in stack.cli("show", second["id"]).out
    assert stack.cli("stop", first["id"], "--force").code == 0
    assert client.wait(first["id"]).state == "STOPPED"
    assert client.wait(second["id"]).state == "SUCCEEDED"


def test_a_held_job_waits_until_it_is_released(stack: Stack) -> None:
    blocker = stack.cli("submit", "--no-snapshot", "--gpus", "8", "--json", "--", "sleep", "600").json
    job = stack.cli("submit", "--no-snapshot", "--gpus", "1", "--json", "--", "true").json
    assert stack.cli("hold", job["id"], "--reason", "wait for the data").code == 0
    stack.cli("stop", blocker["id"], "--force")
    client = stack.client()
    client.wait(blocker["id"])
    eventually(lambda: (gate := client.job(job["id"]).gate) is not None and gate.name == "hold", "the gate `hold`")
    assert "wait for the data" in stack.cli("show", job["id"]).out
    assert stack.cli("release", job["id"]).code == 0
    assert client.wait(job["id"]).state == "SUCCEEDED"


def test_a_thousand_jobs_in_one_batch_all_succeed(stack: Stack) -> None:
    client = stack.client()
    body = {"jobs": [{"name": f"n{number}", "spec": {"command": ["true"]}} for number in range(1000)]}
    ids = client.call("POST", "/v1/jobs/batch", json=body)["ids"]
    assert len(set(ids)) == 1000

    waiting, states = list(ids), set[str]()

    def all_over() -> bool:
        """Whoever else's jobs there are."""
        while waiting and (job := client.job(waiting[0])).state in TERMINAL:
            states.add(job.state)
            waiting.pop(0)
        return not waiting

    eventually(all_over, "1,000 jobs to end", 3 * PATIENCE_SECONDS)
    assert states == {"SUCCEEDED"}
