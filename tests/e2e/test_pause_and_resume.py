"""A training job that saves its state, paused and resumed: the same model, exact GPU time, the same run."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from infra.embedded.home import Home
from shared.backends.local.records import ExitRecord
from shared.client.client import Tidegate
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.e2e.stacks import Stack, eventually

GPUS = 2

# Where it is to be paused it waits for that, so that nobody has to be quick.
TRAIN = """
import json, os, pathlib, random, signal, time

begun = time.time_ns()
asked = []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
attempt = os.environ["TIDEGATE_ATTEMPT"]
folder = pathlib.Path("state")
folder.mkdir(exist_ok=True)
saved = folder / "checkpoint.json"


def write(path, value):
    part = path.with_suffix(".part")
    part.write_text(json.dumps(value))
    os.replace(part, path)


def over(name, value):
    write(folder / name, value)
    write(folder / f"span-{attempt}.json", [begun, time.time_ns()])


resumed = os.environ.get("TIDEGATE_RESUME")
state = json.loads(saved.read_text()) if resumed == "1" else {"step": 0, "weights": [0.0, 0.0, 0.0]}
write(folder / f"seen-{attempt}.json", [os.environ["TIDEGATE_RUN_ID"], attempt, resumed, state["step"]])
step, weights = state["step"], state["weights"]
pauses = [int(text) for text in os.environ["PAUSE_AT"].split()]
while step < 30:
    chance = random.Random(step)
    for _ in range(200):
        x = [1.0, chance.gauss(0, 1), chance.gauss(0, 1)]
        y = 3 * x[0] - 2 * x[1] + 0.5 * x[2] + chance.gauss(0, 0.1)
        error = sum(w * v for w, v in zip(weights, x)) - y
        weights = [w - 0.01 * error * v for w, v in zip(weights, x)]
    step += 1
    if step in pauses:
        print("at step", step)
        while not asked:
            time.sleep(0.01)
    if asked:
        over("checkpoint.json", {"step": step, "weights": weights})
        raise SystemExit(0)
over("model.json", weights)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text(TRAIN)
    return made


def _train(stack: Stack, folder: Path, pauses: str) -> dict[str, Any]:
    """The training job, submitted."""
    words = ["--json", "--dir", str(folder), "--gpus", str(GPUS), "--out", "state/**", "--env", f"PAUSE_AT={pauses}"]
    submitted = stack.cli("submit", *words, "--", "python3", "train.py")
    assert submitted.code == 0, submitted.err
    return dict(submitted.json)


def _unbroken(client: Tidegate, job: dict[str, Any]) -> str:
    """The same job, which nobody pauses; its id."""
    spec = JobSpec.model_validate(job["spec"] | {"env": {"PAUSE_AT": ""}})
    return client.submit(SubmitRequest(spec=spec)).id


def _output(client: Tidegate, job: str, name: str, folder: Path) -> bytes:
    """The content of an output."""
    (file,) = (file for file in client.outputs(job).files if file.path == name)
    return client.download_output(job, file, folder, lambda _: None).read_bytes()


def _exits(stack: Stack, job: str) -> list[ExitRecord]:
    """What the supervisors of a job recorded, attempt by attempt."""
    fields = [json.loads(path.read_text()) for path in Home(stack.home).local.rglob(f"*.{job}.a*.exit.json")]
    found = [record for each in fields if (record := ExitRecord.read(each)) is not None]
    return sorted(found, key=lambda record: record.attempt)


def test_paused_twice_it_ends_with_the_same_model_and_pays_for_exactly_its_segments(
    stack: Stack, folder: Path, tmp_path: Path
) -> None:
    submitted = _train(stack, folder, "10 20")
    job = submitted["id"]
    with stack.client() as client:
        unbroken = _unbroken(client, submitted)
        for attempt, step in enumerate((10, 20), 1):
            eventually(lambda: f"at step {step}" in stack.log(submitted), "it to be there")  # noqa: B023 # at once
            paused = stack.cli("pause", job, "--reason", "lunch", "--wait", "--json")
            assert paused.code == 0, paused.err
            view: dict[str, Any] = paused.json
            assert (view["state"], view["end_reason"], view["attempt"]) == ("PAUSED", "paused_by_user", attempt)
            assert re.fullmatch(r"paused: by \S+ at 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC \(lunch\)", view["message"])
            assert [view[name] for name in ("holds_gpus", "occupies_slot", "counts_gpu_time")] == [False] * 3
            paid = view["gpu_seconds"]  # a record that is being released at this moment is in neither place
            eventually(lambda: _seconds(stack, job) == paid, "the records to say the same")  # noqa: B023 # at once
            kept = client.outputs(job)
            assert {file.path for file in kept.files} >= {"state/checkpoint.json", f"state/span-{attempt}.json"}
            assert client.command(job, "resume").state == "QUEUED"
            if attempt == 1:
                assert "as attempt 1 left them" in stack.cli("outputs", job).err
        ended, alone = client.wait(job), client.wait(unbroken)
        assert (ended.state, alone.state, ended.attempt) == ("SUCCEEDED", "SUCCEEDED", 3), ended.message
        assert (ended.warnings, [each.origin for each in ended.attempts]) == (
            alone.warnings,
            ["submit", "resume", "resume"],
        )
        eventually(lambda: _seconds(stack, job) == ended.gpu_seconds, "the records to say the same")
        model = _output(client, unbroken, "state/model.json", tmp_path / "unbroken")
    assert stack.cli("outputs", "get", job, "--to", str(tmp_path / "got")).code == 0
    got = {path.name: path.read_bytes() for path in (tmp_path / "got/state").iterdir()}
    assert got["model.json"] == model
    seen = [json.loads(got[f"seen-{attempt}.json"]) for attempt in (1, 2, 3)]
    assert seen == [[job, "1", None, 0], [job, "2", "1", 10], [job, "3", "1", 20]]

    for one, exit_ in zip(ended.attempts, _exits(stack, job), strict=True):
        (segment,) = one.segments
        begun, over = (_at(ns) for ns in json.loads(got[f"span-{one.number}.json"]))
        assert segment.started_at is not None
        assert segment.ended_at is not None
        assert segment.started_at <= begun < over <= segment.ended_at
        assert segment.gpu_milliseconds == exit_.duration_ms * GPUS
        assert (exit_.attempt, exit_.code) == (one.number, 0)


def _seconds(stack: Stack, job: str) -> str:
    """The GPU time of the supervisors' own records."""
    return f"{sum(exit_.duration_ms for exit_ in _exits(stack, job)) * GPUS / 1000:.3f}"


def _at(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)


def test_a_pause_sends_the_signal_that_the_job_asked_for(stack: Stack, tmp_path: Path) -> None:
    traps = "trap 'echo usr1 >> got; exit 0' USR1; trap 'echo term >> got; exit 0' TERM"
    script = f"{traps}; echo up; while :; do sleep 0.05; done"
    command = ("sh", "-c", script)
    spec = JobSpec(command=command, outputs=("got",), checkpoint_signal="USR1")
    with stack.client() as client:
        job = client.submit(SubmitRequest(spec=spec)).id
        eventually(lambda: "up" in stack.log({"id": job}), "it to be up")
        assert stack.cli("pause", job, "--wait").code == 0
        assert _output(client, job, "got", tmp_path) == b"usr1\n"
        stopped = client.command(job, "stop")
        assert (stopped.state, stopped.end_reason) == ("STOPPED", "stopped_by_user")


def test_a_waiting_job_is_paused_at_once_and_resumed_into_the_line(stack: Stack) -> None:
    with stack.client() as client:
        holds = client.submit(SubmitRequest(spec=JobSpec(command=("sleep", "600"), gpus=1))).id
        waits = client.submit(SubmitRequest(spec=JobSpec(command=("true",), gpus=8))).id
        try:
            eventually(lambda: client.job(holds).state == "RUNNING", "the first to hold its GPU")
            eventually(lambda: client.job(waits).gate is not None, "the second to wait for it")
            paused = client.command(waits, "pause")
            assert (paused.state, paused.end_reason, paused.attempt) == ("PAUSED", "paused_by_user", 1)
            assert paused.gpu_seconds == "0.000"
            resumed = client.command(waits, "resume")
            assert (resumed.state, resumed.attempt) == ("QUEUED", 2)
            eventually(lambda: (gate := client.job(waits).gate) is not None and gate.need == 8, "it to wait again")
        finally:
            client.command(holds, "stop", {"force": True})
        assert client.wait(waits).state == "SUCCEEDED"
