"""A stack of small stand-ins: `python -m tests.integration.embedded.standin HOME [VARIANT]` runs it until SIGTERM.

Two stages: `store`; then the errand `prepare`, `web` (which answers on a port) and `worker`. Beside them `runner`,
which outlives them. Some write their name into HOME/order when they are asked to end; `door` is the stop's first word.
HOME/store.set and HOME/worker.set are there once what they do about a signal is settled.
"""

import asyncio
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from infra.embedded.home import Home
from infra.embedded.keeper import Backoff
from infra.embedded.ports import Ports
from infra.embedded.processes import Identity, Process
from infra.embedded.state import State, hold
from infra.embedded.supervisor import StackError, Stage, Supervisor


def stages(home: Home, variant: str) -> tuple[Stage, ...]:
    """The stand-ins; `variant` makes one of them behave badly."""

    def shell(name: str, script: str, stop_seconds: float = 10, outlives: bool = False) -> Process:
        return Process(
            name=name,
            command=("/bin/sh", "-c", script),
            environment={"PATH": "/usr/bin:/bin"},
            cwd=home.root,
            log=home.log(name),
            stop_seconds=stop_seconds,
            outlives=outlives,
        )

    def patient(name: str) -> Process:
        return shell(name, f'trap "echo {name} >> order; exit" TERM; touch {name}.set; while :; do sleep 0.02; done')

    worker = patient("worker")
    if variant == "stubborn":
        worker = shell("worker", 'trap "" TERM; touch worker.set; while :; do sleep 0.02; done', stop_seconds=0.3)
    if variant == "dying":
        worker = shell("worker", "exit 7")
    port = Ports(home.root, {}).some("web")
    (home.root / "readyz").touch()
    web = Process(
        name="web",
        command=(sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"),
        cwd=home.root,
        log=home.log("web"),
        ready=f"http://127.0.0.1:{port}/readyz",
    )
    store = shell("store", "echo the shelf is bent; exit 4") if variant == "hopeless" else patient("store")
    if variant == "hopeless":
        store = replace(store, ready="nats://127.0.0.1:1")
    errand = shell("prepare", "echo the ink is dry; exit 3" if variant == "failing" else "echo done")
    runner = shell("runner", "exec sleep 1000", outlives=True)
    for name in ("store", "worker"):
        (home.root / f"{name}.set").unlink(missing_ok=True)
    return Stage((store, runner)), Stage((web, worker), (errand,), must_be_ready=False)


def main(root: Path, variant: str) -> int:
    """Until SIGTERM; 1 where the start failed, with the sentence on stderr."""
    home = Home(root)
    home.make()
    with hold(home):
        before = State.read(home)
        outlived: dict[str, Identity] = {}
        for entry in before.processes if before else ():
            if entry.outlives and entry.identity and entry.identity.alive():
                outlived[entry.name] = entry.identity
        quick = Backoff(first_seconds=0.05, longest_seconds=0.4)
        try:
            with (root / "order").open("a") as order:
                shut = partial(print, "door", file=order, flush=True)
                supervisor = Supervisor(home, stages(home, variant), running=outlived, backoff=quick, on_stop=shut)
                asyncio.run(supervisor.run())
        except StackError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *(sys.argv[2:] or ["well"])))
