"""A supervisor takes a further attempt once nothing is left of its last; never where somebody may mean to kill it."""

import asyncio
import itertools
import os
import signal

from shared.backends.local import layout, locks
from shared.backends.local.messages import KillKind
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import Backend, eventually, is_running


async def supervisor_of(backend: Backend, job: str, *command: str) -> int:
    """The process that supervised this job from its start to its end, once it waits for more or has ended."""
    request = await backend.request(job, *command)
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 0
    await eventually(lambda: not locks.is_held(str(backend.record(request.submission, layout.SPEC))), "it is let go of")
    return backend.supervisor_pid(request.submission)


async def test_one_process_supervises_job_after_job_and_each_as_if_it_was_the_first(backend: Backend) -> None:
    script = "ls /proc/self/fd; grep -E 'SigIgn|SigBlk|NoNewPrivs' /proc/self/status; ulimit -c; umask; env | grep MINE"
    outputs: dict[int, list[str]] = {}
    for number in itertools.count():  # one that has waited for a while is gone, so the next may be another's
        request = await backend.request(
            f"j{number}", "sh", "-c", f"{script} | sort; true", environment={} if outputs else {"MINE": "1"}
        )
        end = (await backend.run(request)).exit
        assert end is not None
        assert (end.code, end.job, end.stop_seen_at) == (0, f"j{number}", None)
        supervisor, printed = backend.supervisor_pid(request.submission), backend.output(request).splitlines()
        if supervisor in outputs:
            break
        outputs[supervisor] = [line for line in printed if line != "MINE=1"]
    assert printed == outputs[supervisor], "nothing of an earlier job is left, nor of what supervised it"


async def test_jobs_of_another_tenant_run_as_that_tenant(backend: Backend) -> None:
    seen = {}
    for job, tenant in (("ours", "acme"), ("theirs", "other")):
        request = await backend.request(
            job, "sh", "-c", "id -u; cat ../../../../acme/ours/a1/e1/mine || true", tenant=tenant
        )
        (backend.directory(request) / "mine").write_text(tenant)
        await backend.run(request)
        seen[tenant] = backend.output(request).split()
        assert seen[tenant][0] == str(await backend.client.uid_for(tenant))
    assert seen["acme"][1:] == ["acme"]
    assert "acme" not in seen["other"] or os.geteuid() != 0


async def test_one_that_was_asked_to_stop_takes_no_other_attempt(backend: Backend) -> None:
    request = await backend.request(
        "stopped", "sh", "-c", "trap 'exit 0' TERM; touch ready; while :; do sleep 0.02; done"
    )
    await backend.started(request)
    await backend.client.stop(request.submission, 600)
    await backend.until(request.submission, LocalState.EXITED)
    supervisor = backend.supervisor_pid(request.submission)
    assert await supervisor_of(backend, "next", "true") != supervisor
    await eventually(lambda: not is_running(supervisor), "it has ended")


async def test_one_that_was_slow_to_record_the_end_takes_no_other_attempt(backend: Backend) -> None:
    """Somebody may have looked before there was a record, and be about to kill it."""
    failpoints = backend.use_failpoints()
    backend.end_host()
    await backend.start_host("--virtual-gpus", "8")
    failpoints.arm("supervisor.exit.before", "stop")
    request = await backend.request("slow", "true")
    await backend.submit(request)
    supervisor = await failpoints.until_obeyed("supervisor.exit.before")
    await asyncio.sleep(0.3)  # longer does no harm
    os.kill(supervisor, signal.SIGCONT)
    await backend.until(request.submission, LocalState.EXITED)
    assert await supervisor_of(backend, "next", "true") != supervisor


async def test_one_that_waits_ends_with_its_host(backend: Backend) -> None:
    supervisor = await supervisor_of(backend, "last", "true")
    backend.kill_host()
    await eventually(lambda: not is_running(supervisor), "it has ended")


async def test_one_that_is_killed_in_its_second_attempt_costs_that_one_only(backend: Backend) -> None:
    first = await backend.request("first", "true")
    await backend.run(first)
    second = await backend.request("second", "sh", "-c", "touch ready; exec sleep 600")
    await backend.started(second)
    os.kill(backend.supervisor_pid(second.submission), signal.SIGKILL)
    await backend.until(second.submission, LocalState.GONE)
    assert (await backend.client.kill(second.submission)).kind is KillKind.GONE
    seen = backend.seen(first.submission)
    assert seen is not None
    assert seen.state is LocalState.EXITED
    await supervisor_of(backend, "third", "true")
