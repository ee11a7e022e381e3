"""The client against commands that do what Slurm's do on a bad day: programs of these names in a folder of the test."""

import asyncio
import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.backends.slurm.accounting import COLUMNS as ACCOUNTING_COLUMNS
from shared.backends.slurm.accounting import DISABLED_SENTENCE
from shared.backends.slurm.answers import Done, NotDone, Refused, Submitted, Unclear
from shared.backends.slurm.client import SlurmClient, TimeOuts
from shared.backends.slurm.orders import Order
from shared.backends.slurm.queue import COLUMNS
from shared.backends.slurm.rows import Listed, NoAnswer
from tests.patience import PATIENCE_SECONDS

ORDER = Order("tg.j01.a1.s1", "tidegate/1 0123", "#!/bin/sh\ntrue\n", "/tmp", "/dev/null", "/dev/null")
SINCE = datetime(2026, 11, 30, tzinfo=UTC)
FAILED = "sbatch: error: Batch job submission failed"
QUICK = TimeOuts(submit_seconds=0.5, query_seconds=0.5, accounting_seconds=0.5, act_seconds=0.5)

Stand = Callable[..., SlurmClient]


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    """A client of a cluster whose one command is a shell script with this body."""

    def client(
        command: str, body: str, *, time_outs: TimeOuts | None = None, prefix: tuple[str, ...] = ()
    ) -> SlurmClient:
        program = tmp_path / command
        program.write_text(f"#!/bin/sh\nhere={shlex.quote(str(tmp_path))}\n{body}\n")
        program.chmod(0o755)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HERE": str(tmp_path)}
        return SlurmClient(environment=environment, time_outs=time_outs, prefix=prefix)

    return client


def said(words: str) -> str:
    """The body of a command that says so and fails."""
    return f"printf '%s\\n' {shlex.quote(words)} >&2; exit 1"


def content(path: Path) -> str:
    """All that is in it, once its last line is whole; else nothing."""
    text = path.read_text() if path.exists() else ""
    return text if text.endswith("\n") else ""


def runs(pid: int) -> bool:
    """Is there such a process, and not only what is left of one?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {what}"
        await asyncio.sleep(0.02)


async def gone(pid: int) -> None:
    await until(lambda: not runs(pid), f"process {pid} to end")


async def written(path: Path) -> str:
    await until(lambda: content(path), f"{path} to be written")
    return content(path)


async def test_the_script_goes_in_and_the_id_comes_out(stand: Stand, tmp_path: Path) -> None:
    client = stand("sbatch", 'cat >"$here/script"; echo "5001;alpha"')
    assert await client.submit(ORDER) == Submitted("5001", "alpha")
    assert (tmp_path / "script").read_text() == ORDER.script


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param("echo 'Welcome to alpha'", "named no job", id="no id"),
        pytest.param("echo 5001; exit 1", "ended with 1", id="an id, and a failure"),
        pytest.param("kill -KILL $$", "killed", id="killed"),
        pytest.param("kill -TERM $$", "killed", id="killed by another signal"),
        pytest.param("sleep 600", "did not answer", id="no answer"),
        pytest.param(said(f"{FAILED}: Socket timed out on send/recv operation"),
                     "Socket timed out", id="timed out: the job had been created"),
        pytest.param(said(f"{FAILED}: Unspecified error"),
                     "Unspecified error", id="an error without a name"),
        pytest.param("echo 7\n" + said(f"{FAILED}: Invalid partition name specified"),
                     "ended with 1", id="refused, with an id"),
        pytest.param("exit 255", "ended with 255", id="ssh could not connect, or lost its connection"),
    ],
)  # fmt: skip
async def test_a_submission_that_was_not_answered_is_unclear(stand: Stand, body: str, why: str) -> None:
    answer = await stand("sbatch", body, time_outs=QUICK if "sleep" in body else None).submit(ORDER)
    assert isinstance(answer, Unclear)
    assert why in answer.why


async def test_a_command_that_is_not_there_is_unclear(stand: Stand) -> None:
    client = stand("other", "true")
    assert isinstance(await client.submit(ORDER), Unclear)
    assert isinstance(await client.queue(), NoAnswer)
    assert isinstance(await client.cancel(["1"]), NotDone)


async def test_a_refusal_says_what_is_wrong(stand: Stand) -> None:
    words = f"sbatch: error: invalid partition specified: nosuch\n{FAILED}: Invalid partition name specified"
    client = stand("sbatch", said(words))
    assert await client.submit(ORDER) == Refused("Invalid partition name specified", "partition", passing=False)


@pytest.mark.parametrize("order", [ORDER, None], ids=["a submission", "a question"])
async def test_what_runs_out_of_time_is_killed_with_all_that_it_started(
    stand: Stand, tmp_path: Path, order: Order | None
) -> None:
    body = 'sleep 600 & echo $! >"$here/child"; trap "" TERM; echo "$$" >"$here/parent"; wait'
    client = stand("sbatch" if order else "squeue", body, time_outs=TimeOuts(submit_seconds=1, query_seconds=1))
    answer = await (client.submit(order) if order else client.queue())
    assert isinstance(answer, Unclear | NoAnswer)
    left = [tmp_path / "child", tmp_path / "parent"]
    await until(lambda: not any(content(each) and runs(int(content(each))) for each in left), "both to end")


async def test_what_holds_the_answer_open_is_killed_too(stand: Stand, tmp_path: Path) -> None:
    child = tmp_path / "child"
    client = stand("sbatch", 'sleep 600 & echo $! >"$here/child"; echo 5001', time_outs=TimeOuts(submit_seconds=1))
    assert isinstance(await client.submit(ORDER), Unclear)
    await until(lambda: not (content(child) and runs(int(content(child)))), "the child to end")


async def test_a_caller_that_is_cancelled_leaves_nothing_running(stand: Stand, tmp_path: Path) -> None:
    client = stand("sbatch", 'echo $$ >"$here/pid"; sleep 600')
    submission = asyncio.create_task(client.submit(ORDER))
    pid = int(await written(tmp_path / "pid"))
    submission.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submission
    await gone(pid)


SUBMITTER = """
import asyncio, sys
from shared.backends.slurm.client import SlurmClient, TimeOuts
from shared.backends.slurm.orders import Order
order = Order("tg.j01.a1.s1", "c", "#!/bin/sh", "/tmp", "/dev/null", "/dev/null")
client = SlurmClient(environment={"PATH": sys.argv[1]}, time_outs=TimeOuts(submit_seconds=float(sys.argv[2])))
asyncio.run(client.submit(order))
"""


@pytest.mark.parametrize(
    ("sign", "seconds"),
    [pytest.param(signal.SIGKILL, "600", id="killed"), pytest.param(signal.SIGSTOP, "6", id="frozen, at the time-out")],
)
async def test_a_submission_does_not_outlive_its_launcher(
    stand: Stand, tmp_path: Path, sign: int, seconds: str
) -> None:
    stand("sbatch", 'echo $$ >"$here/pid"; exec sleep 600')
    launcher = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUBMITTER, f"{tmp_path}:/usr/bin:/bin", seconds
    )
    try:
        pid = int(await written(tmp_path / "pid"))
        launcher.send_signal(sign)
        await gone(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            launcher.kill()
        await launcher.wait()


async def test_no_more_submissions_run_at_once_than_allowed(tmp_path: Path) -> None:
    program = tmp_path / "sbatch"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}\nmkdir "run.$$"; ls -d run.* | wc -l >>seen; sleep 0.05; rmdir "run.$$"; echo 1\n'
    )
    program.chmod(0o755)
    client = SlurmClient(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"}, submissions_at_once=3)
    assert set(await asyncio.gather(*(client.submit(ORDER) for _ in range(12)))) == {Submitted("1", None)}
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == 12
    assert max(seen) <= 3


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(said("slurm_load_jobs error: Unable to contact slurm controller"), id="controller down"),
        pytest.param("echo 'something is wrong' >&2", id="nothing printed, and all well"),
        pytest.param("true", id="nothing printed"),
        pytest.param(said("slurm_load_jobs error: Invalid job id specified"), id="an id that is not there"),
        pytest.param("sleep 600", id="no answer"),
    ],
)  # fmt: skip
async def test_could_not_ask_is_no_absence(stand: Stand, body: str) -> None:
    client = stand("squeue", body, time_outs=QUICK if "sleep" in body else None)
    assert isinstance(await client.queue(), NoAnswer)


async def test_an_empty_queue_is_an_answer(stand: Stand) -> None:
    """Also where Slurm warns of its configuration at each call."""
    titles = "\\n".join(COLUMNS.values())
    body = f"""echo 'squeue: error: some key is there twice' >&2
    for word do case "$word" in --Format=*) format="$word";; esac; done
    end="@${{format##*@}}"; end="${{format%@}}"; end="@${{end##*@}}@"
    printf '{titles}\\n' | while read -r title; do printf '%s%s' "$title" "$end"; done; echo"""
    assert await stand("squeue", body).queue() == Listed(())


async def test_a_cluster_without_accounting_says_what_to_do(stand: Stand) -> None:
    client = stand("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert await client.accounting(SINCE) == NoAnswer(DISABLED_SENTENCE)


async def test_accounting_is_asked_between_two_moments(stand: Stand, tmp_path: Path) -> None:
    client = stand("sacct", 'printf "%s\\n" "$@" "$SLURM_TIME_FORMAT" >"$here/words"; exit 1')
    await client.accounting(SINCE, datetime(2026, 12, 1, tzinfo=UTC), names=["a", "b"])
    words = (tmp_path / "words").read_text().split("\n")
    assert {
        "--allocations",
        "--duplicates",
        "--starttime=uts1795996800",
        "--endtime=uts1796083200",
        "--name=a,b",
        "%s",
    } <= set(words)
    assert f"--format={','.join(ACCOUNTING_COLUMNS)}" in words
    with pytest.raises(ValueError, match="with a zone"):
        await client.accounting(datetime(2026, 11, 30))  # noqa: DTZ001


async def test_nothing_of_our_own_environment_changes_the_question(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    await stand("squeue", 'env >"$here/env"; exit 1').queue()
    lines = (tmp_path / "env").read_text().splitlines()
    assert "SLURM_TIME_FORMAT=%s" in lines
    assert not [line for line in lines if line.startswith("SQUEUE_")]


async def test_behind_ssh_every_word_arrives_as_it_was(stand: Stand, tmp_path: Path) -> None:
    """ssh joins its arguments and has a shell take them apart: so does this one."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nhost="$1"; shift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    client = stand(
        "sbatch", 'printf "%s\\n" "$@" >"$here/words"; cat >"$HERE/script"; echo 5001', prefix=(str(ssh), "login1")
    )
    strange = Order("n", "$(reboot); 'x' \"y\" *", ORDER.script, "/a b", "/dev/null", "/dev/null")
    assert await client.submit(strange) == Submitted("5001", None)
    words = (tmp_path / "words").read_text().splitlines()
    assert "--comment=$(reboot); 'x' \"y\" *" in words
    assert "--chdir=/a b" in words
    assert (tmp_path / "script").read_text() == ORDER.script


async def test_only_ids_are_cancelled(stand: Stand, tmp_path: Path) -> None:
    client = stand("scancel", 'printf "%s\\n" "$@" >"$here/words"')
    for ids in ([], [""], ["--user=root"], ["1", "2;reboot"]):
        with pytest.raises(ValueError, match="job"):
            await client.cancel(ids)
    assert not (tmp_path / "words").exists()
    assert await client.cancel(["1", "2_[3-4]"], name="a", signal="USR1", batch=True) == Done()
    assert (tmp_path / "words").read_text().split() == ["--signal=USR1", "--batch", "--name=a", "1", "2_[3-4]"]


@pytest.mark.parametrize(
    ("told", "answer"),
    [
        (["Invalid job id specified", "Job/step already completing or completed"], Done()),
        (["Invalid job id specified", "Access/permission denied"], "denied"),
        (["Unable to contact slurm controller (connect failure)"], None),
    ],
)
async def test_a_job_that_is_over_need_not_be_cancelled(
    stand: Stand, told: list[str], answer: Done | str | None
) -> None:
    lines = [f"scancel: error: Kill job error on job id {at}: {what}" for at, what in enumerate(told, 1)]
    client = stand("scancel", f"printf '%s\\n' {shlex.join(lines)} >&2; exit 1")
    found = await client.cancel([str(at + 1) for at in range(len(told))])
    if isinstance(answer, Done):
        assert found == answer
    else:
        assert isinstance(found, NotDone)
        assert found.word == answer


async def test_ping_hears_the_one_controller_that_is_up(stand: Stand) -> None:
    assert await stand("scontrol", "echo 'Slurmctld(primary) at vm is UP'").ping() == Done()
    down = await stand("scontrol", "echo 'Slurmctld(primary) at vm is DOWN'; exit 1").ping()
    assert isinstance(down, NoAnswer)
    assert "is DOWN" in down.why
