"""As root tenants have users of their own: a job can reach nothing of another tenant and nothing of the stack."""

import asyncio
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.backends.local import layout
from shared.backends.local.observer import LocalState
from tests.integration.backends.local.harness import AS_ROOT, Backend, pids_in

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="needs root to give tenants users of their own")

WAITS = "echo $$ > ready; while [ ! -e go ]; do sleep 0.01; done"


async def test_each_tenant_has_a_user_of_its_own_that_stays_the_same(backend: Backend) -> None:
    uids = {}
    for tenant in ("acme", "borg"):
        request = await backend.request(f"who-{tenant}", "id", tenant=tenant)
        await backend.run(request)
        uid = await backend.client.uid_for(tenant)
        assert backend.output(request) == f"uid={uid} gid={uid} groups={uid}\n"
        uids[tenant] = uid
    assert len(set(uids.values())) == 2
    assert min(uids.values()) >= 200_000
    assert {tenant: await backend.client.uid_for(tenant) for tenant in uids} == uids


async def test_the_working_directory_belongs_to_the_tenant_and_its_links_are_not_followed(backend: Backend) -> None:
    outside = backend.root.parent / "outside"
    outside.write_text("ours")
    shared = backend.root.parent / "shared"
    shared.write_text("also ours")
    request = await backend.request("own", "sh", "-c", "echo more >> deep/file; touch new", stage=True)
    directory = backend.directory(request)
    (directory / "deep").mkdir()
    (directory / "deep" / "file").write_text("some\n")
    (directory / "link").symlink_to(outside)
    (directory / "away").symlink_to(outside.parent)
    os.link(shared, directory / "hard")
    os.link(directory / "deep" / "file", directory / "twin")
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 0
    uid = await backend.client.uid_for("acme")
    owners = {
        name: os.lstat(directory / name).st_uid for name in (".", "deep", "deep/file", "twin", "link", "away", "hard")
    }
    assert owners == {".": uid, "deep": uid, "deep/file": uid, "twin": uid, "link": uid, "away": uid, "hard": 0}
    assert (outside.stat().st_uid, outside.parent.stat().st_uid) == (0, 0)


async def test_a_job_runs_the_virtual_environments_python_below_a_closed_home(backend: Backend) -> None:
    assert (await backend.client.status()).isolation == "mounts"
    request = await backend.request("python", "python", "-c", "import sys, json; print(sys.prefix)")
    end = (await backend.run(request)).exit
    assert end is not None
    assert (end.code, backend.output(request).strip()) == (0, sys.prefix)


async def test_another_tenants_files_processes_and_environment_are_out_of_reach(backend: Backend) -> None:
    victim = await backend.request("victim", "sh", "-c", WAITS, tenant="borg", environment={"TOKEN": "s3cret"})
    await backend.started(victim)
    pid = int((backend.directory(victim) / "ready").read_text())
    theirs = backend.directory(victim)
    tries = [
        f"cat {theirs}/ready",
        f"ls {theirs}",
        f"ls {theirs.parent}",
        f"ls {backend.root}/work",
        f"ls {backend.root}/work/borg",
        f"ls {backend.root}/work/acme",
        f"touch {theirs}/mine",
        f"cat {theirs.parent}/logs/stdout",
        f"cat /proc/{pid}/environ",
        f"cat /proc/{pid}/cmdline",
        f"ls /proc/{pid}/cwd/",
        f"kill -0 {pid}",
    ]
    reached = await _reached(backend, tries)
    assert reached == []


async def test_nothing_of_the_stack_can_be_reached_from_inside_a_job(backend: Backend) -> None:
    home = backend.root.parent
    (home / "endpoint.json").write_text("token")
    (home / "endpoint.json").chmod(0o644)
    listener = socket.socket(socket.AF_UNIX)
    (home / "pg").mkdir()
    here = os.getcwd()
    os.chdir(home / "pg")  # a socket's path may have 107 bytes
    listener.bind("db.sock")
    listener.listen()
    os.chdir(here)
    (home / "pg" / "db.sock").chmod(0o777)
    assert backend.host is not None
    dial = (
        "python -c 'import os, socket, sys; os.chdir(sys.argv[1]); socket.socket(socket.AF_UNIX).connect(sys.argv[2])'"
    )
    tries = [
        f"cat {home}/endpoint.json",
        f"ls {home}",
        f"{dial} {home}/pg db.sock",
        f"{dial} {backend.root} host.sock",
        f"ls {backend.root}",
        f"ls {backend.root}/open",
        f"cat {backend.root}/uids.json",
        f"cat {backend.root}/host.json",
        f"touch {backend.root}/new",
        f"touch {sys.prefix}/new",
        f"cat /proc/{backend.host.pid}/environ",
        f"cat /proc/{os.getpid()}/environ",
        f"ls /proc/{os.getpid()}/root/",
        "cat /proc/$PPID/environ",
        "ls /proc/$PPID/fd",
        "kill -0 $PPID",
        "cat ../claim",
        "touch ../revoked",
        "rm -f ../claim && test ! -e ../claim",
        "echo forged > ../exit",
        "ls /proc/self/cwd/../logs",
    ]
    reached = await _reached(backend, tries)
    listener.close()
    assert reached == []


async def _reached(backend: Backend, tries: list[str]) -> list[str]:
    tries = ["test -r t.sh", *tries]
    script = "".join(
        f"if {{ {attempt}; }} >/dev/null 2>&1; then echo '{index}'; fi\n" for index, attempt in enumerate(tries)
    )
    request = await backend.request("attacker", "sh", "t.sh", files={"t.sh": script})
    end = (await backend.run(request)).exit
    assert end is not None
    assert end.code == 0, backend.output(request, "stderr")
    reached = [tries[int(line)] for line in backend.output(request).split()]
    assert reached[0] == tries[0], "what it may reach, it does"
    return reached[1:]


async def test_a_hidden_directory_is_empty_for_jobs_though_its_modes_are_open() -> None:
    home = Path("/var/tmp") / f"tidegate-test-{os.getpid()}"
    home.mkdir(mode=0o755)
    backend = Backend(home / "local")
    try:
        (home / "endpoint.json").write_text("token")
        await backend.start_host("--hide", str(home))
        request = await backend.request("peek", "cat", str(home / "endpoint.json"))
        end = (await backend.run(request)).exit
        assert end is not None
        assert end.code == 1
        assert "No such file" in backend.output(request, "stderr")
    finally:
        await backend.end()
        for path in sorted(home.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        home.rmdir()


async def test_without_mounts_of_its_own_a_job_below_a_closed_home_says_what_to_do(backend: Backend) -> None:
    backend.end_host()
    await backend.start_host(through=["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"])
    assert (await backend.client.status()).isolation == "permissions"
    end = (await backend.run(await backend.request("closed", "true"))).exit
    assert end is not None
    assert (end.ran, end.reason) == (False, "working_directory_unreachable")
    closed = next(path for path in reversed(backend.root.parents) if not path.stat().st_mode & stat.S_IXOTH)
    assert f"{closed} is closed to user" in (end.sentence or "")
    assert "chmod o+x" in (end.sentence or "")


async def test_a_job_is_in_no_group_that_its_host_is_in(backend: Backend) -> None:
    backend.end_host()
    await backend.start_host(through=["setpriv", "--groups", "4,24"])
    request = await backend.request("groups", "id", "-G")
    await backend.run(request)
    assert backend.output(request).split() == [str(await backend.client.uid_for("acme"))]


async def test_what_is_bound_into_the_view_is_read_only_but_the_root(backend: Backend) -> None:
    request = await backend.request("mounts", "cat", "/proc/self/mountinfo")
    await backend.run(request)
    mounts = [line.split()[4:6] for line in backend.output(request).splitlines()]
    options = {path: modes.split(",") for path, modes in mounts}
    assert "rw" in options[str(backend.root)]
    bound = [path for path in options if path in (sys.prefix, sys.base_prefix)]
    covers = [path for path in options if str(backend.root).startswith(f"{path}/") and path != "/"]
    assert covers
    for path in (*bound, *covers):
        assert "ro" in options[path], path


@pytest.fixture
def small_memory() -> Iterator[Callable[[int], None]]:
    """Puts a process into a group with 64 MB of memory."""
    group = Path(f"/sys/fs/cgroup/memory/tidegate-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"no memory group can be made here: {error}")

    def enter(pid: int) -> None:
        (group / "cgroup.procs").write_text(str(pid))

    yield enter
    group.rmdir()


async def test_a_job_that_the_kernel_kills_for_memory_is_out_of_memory(
    backend: Backend, small_memory: Callable[[int], None]
) -> None:
    script = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\nopen('ready', 'w')\n"
    script += "while not os.path.exists('go'): time.sleep(0.01)\nbytearray(512 << 20)\n"
    request = await backend.request("hungry", "python", "h.py", files={"h.py": script})
    await backend.started(request)
    (pid,) = pids_in(backend.directory(request) / "pid")
    small_memory(pid)
    (backend.directory(request) / "go").touch()
    end = (await backend.until(request.submission, LocalState.EXITED)).exit
    assert end is not None
    assert (end.signal, end.reason) == (signal.SIGKILL, "out_of_memory")


async def test_a_broken_table_of_uids_hands_out_none(backend: Backend) -> None:
    await backend.run(await backend.request("before", "true"))
    (backend.root / layout.UIDS).write_text('{"uids": {"acme"')
    with pytest.raises(Exception, match="is not a table of tenants' uids"):
        await backend.client.uid_for("acme")


async def test_many_tenants_asked_for_at_once_get_different_uids(backend: Backend) -> None:
    uids = await asyncio.gather(*(backend.client.uid_for(f"t{index % 20}") for index in range(100)))
    assert len(set(uids)) == 20
    assert uids[:20] == uids[80:]
