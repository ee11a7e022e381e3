"""One stack in one home, from its start to its end: what `tidegate up` runs, in front or detached."""

import asyncio
import os
import signal
import sys
from dataclasses import replace

from infra.embedded.binaries import ProgramMissingError
from infra.embedded.home import Home
from infra.embedded.options import Options
from infra.embedded.ports import PortTakenError
from infra.embedded.postgres import PostgresError
from infra.embedded.processes import Identity
from infra.embedded.runner import RUNNER, end_idle_host, running_host, running_jobs, what_waits_for_jobs
from infra.embedded.stack import Stack
from infra.embedded.state import AlreadyRunningError, State, hold
from infra.embedded.supervisor import StackError, Supervisor

DONE, FAILED, REFUSED = 0, 1, 3


def serve(options: Options) -> int:
    """Start the stack, stand until told to stop, stop it. Returns the exit code; what went wrong is on stderr."""
    home = Home(options.home)
    try:
        home.make()
        with hold(home):
            return _serve(home, options)
    except KeyboardInterrupt:  # before there was anything to stop
        return DONE
    except AlreadyRunningError as error:
        return _complain(error, REFUSED)
    except OSError as error:
        return _complain(
            OSError(f"{home.root} cannot hold a stack: {error}. Choose another folder with --home."), REFUSED
        )


def _serve(home: Home, options: Options) -> int:
    me = Identity.of(os.getpid())
    assert me is not None
    before = State.read(home) or State(me)
    starting = State(me, processes=before.processes, ports=before.ports)
    starting.write(home)
    end_leftovers(before)
    try:
        stack = Stack.lay_out(options, before.ports)
        stack.write_bootstrap_tokens()
        stack.postgres.prepare()
        end_idle_host(home)  # so that one without jobs, left by a killed supervisor, does not hold on to old options
        host = running_host(home)
        if host is not None and (sentence := what_waits_for_jobs(home, options)):
            print(sentence, file=sys.stderr)
        supervisor = Supervisor(
            home,
            stack.stages(),
            ports=stack.ports,
            running={RUNNER: host} if host else {},
            on_ready=lambda: _announce(stack),
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
    print(f"tidegate is up at {stack.url} (home {stack.home.root})", flush=True)


def _complain(error: Exception, code: int) -> int:
    print(f"tidegate up: {error}", file=sys.stderr, flush=True)
    return code
