"""One stack in one home, from its start to its end: what `tidegate up` runs, in front or detached."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

from infra.embedded.binaries import ProgramMissingError
from infra.embedded.home import Home, HomeRefusedError
from infra.embedded.options import Options
from infra.embedded.ports import PortTakenError
from infra.embedded.postgres import PostgresError
from infra.embedded.processes import Identity
from infra.embedded.restored import forget, put_in_place
from infra.embedded.runner import RUNNER, end_idle_host, running_host, running_jobs, what_waits_for_jobs
from infra.embedded.stack import Stack
from infra.embedded.state import AlreadyRunningError, State, hold
from infra.embedded.supervisor import StackError, Supervisor

DONE, FAILED, REFUSED = 0, 1, 3


def serve(options: Options) -> int:
    """Start the stack, stand until told to stop, stop it. Returns the exit code; what went wrong is on stderr."""
    home = Home(options.home)
    try:
        with home.refusing():
            home.make()
            with hold(home):
                return _serve(home, options)
    except KeyboardInterrupt:  # before there was anything to stop
        return DONE
    except (AlreadyRunningError, HomeRefusedError) as error:
        return _complain(error, REFUSED)


def _serve(home: Home, options: Options) -> int:
    me = Identity.of(os.getpid())
    assert me is not None
    before = State.read(home) or State(me)
    starting = State(me, processes=before.processes, ports=before.ports)
    starting.write(home)
    end_leftovers(before)
    try:
        stack = Stack.lay_out(options, before.ports)
        put_in_place(home)
        stack.write_bootstrap_tokens()
        stack.postgres.prepare()
        end_idle_host(home)  # so that one without jobs, left by a killed supervisor, does not hold on to old options
        host = running_host(home)
        if host is not None and (sentence := what_waits_for_jobs(home, options)):
            print(sentence, file=sys.stderr)
        supervisor = Supervisor(
            home,
            stack.stages(),
            state=replace(
                starting,
                ports=dict(stack.ports),
                many_tenants=stack.many_tenants,
                replicas=dict(options.replicas),
                clusters=None if options.clusters is None else str(options.clusters),
                remark=stack.remark,
            ),
            running={RUNNER: host} if host else {},
            on_ready=lambda: _announce(stack),
            on_stop=stack.door.close,
        )
        try:
            asyncio.run(supervisor.run())
        finally:
            home.endpoint.unlink(missing_ok=True)
            stack.postgres.clean()
            end_idle_host(home)
    except (PortTakenError, ProgramMissingError, PostgresError) as error:
        replace(starting, problem=str(error)).write(home)
        return _complain(error, REFUSED)
    except StackError as error:
        return _complain(error, FAILED)
    if jobs := running_jobs(home):
        print(jobs_go_on(jobs), file=sys.stderr)
    return DONE


def end_leftovers(before: State) -> None:
    """End what a supervisor that was killed left running, last started first; jobs and their host go on."""
    for entry in reversed(before.processes):
        if entry.identity is not None and not entry.outlives:
            entry.identity.end(signal.Signals(entry.stop_signal), entry.stop_seconds)


def jobs_go_on(jobs: int) -> str:
    """What happens to jobs that run while the stack does not."""
    what, them = ("job goes", "it") if jobs == 1 else ("jobs go", "them")
    return f"{jobs} {what} on running; the next `tidegate up` picks {them} up"


def _announce(stack: Stack) -> None:
    stack.write_endpoint()
    print(is_up(stack.url, stack.home, stack.remark), flush=True)
    forget(stack.home)


def is_up(url: str, home: Home, remark: str | None) -> str:
    """What `up` says at last."""
    return f"tidegate is up at {url} (home {home.root})" + (f"; {remark}" if remark else "")


def _complain(error: Exception, code: int) -> int:
    print(f"tidegate up: {error}", file=sys.stderr, flush=True)
    return code
