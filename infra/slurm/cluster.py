"""A Slurm cluster of one node for tests: everything of it below one folder, several at once on one machine.

Needs root and Debian's packages (`missing.why_no_cluster`). Nothing outside the folder is written or read, but for
control groups with `memory_limits`; commands find the cluster by its `environment` only.
"""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from infra.embedded.ports import Ports
from infra.embedded.processes import Identity, start
from infra.slurm.configuration import ClusterError, Layout, configure, node_name
from infra.slurm.daemons import Daemon, daemons, environment
from infra.slurm.leftovers import kill_everything, remove_control_groups
from infra.slurm.missing import why_no_cluster, why_no_memory_limits
from infra.slurm.options import Options

PATIENCE_SECONDS: Final = 120.0
"""For whatever has to happen once, on a machine that is ten times slower than a quiet one."""
_STOP_SECONDS: Final = 20.0
_LISTENERS: Final = ("slurmctld", "slurmd", "slurmdbd")
_UP: Final = ("idle", "mixed", "allocated", "completing")


class Cluster:
    """One of them, running or not. Who started it holds its ports; any other object of the same folder can stop it."""

    def __init__(self, root: Path, options: Options | None = None) -> None:
        """Of a folder that had a cluster before: that one, with its options where none are given."""
        self.root: Final = root.resolve()
        self._layout: Final = Layout(self.root)
        remembered = _remembered(self._layout)
        self.options: Final = options or Options.from_json(remembered["options"])
        self._held: Ports | None = None
        self._ports: dict[str, int] = remembered["ports"]
        self._running = {name: Identity.from_json(daemon) for name, daemon in remembered["daemons"].items()}
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._changed: dict[str, str] = {}

    @property
    def was_started(self) -> bool:
        """Whether there ever was a cluster in the folder."""
        return self._layout.remembered.exists()

    @property
    def environment(self) -> Mapping[str, str]:
        """For a subprocess that is to ask this cluster: SLURM_CONF, PATH and little else."""
        return environment(self._layout)

    @property
    def node(self) -> str:
        """Its name."""
        return node_name(self._ports)

    @property
    def daemons(self) -> Mapping[str, Daemon]:
        """By name, in the order of their start: munged, mariadb, slurmdbd, slurmctld, slurmd."""
        return daemons(self._layout, self._ports, accounting=self.options.accounting)

    def start(self) -> None:
        """Start what does not run, and return once the node takes jobs."""
        if missing := why_no_cluster(accounting=self.options.accounting):
            raise ClusterError(missing)
        if self.options.memory_limits and (missing := why_no_memory_limits()):
            raise ClusterError(missing)
        if self._held is None and not any(daemon.alive() for daemon in self._running.values()):
            self._held = Ports(self.root, self._ports)
            self._ports = {name: self._held.some(name) for name in _LISTENERS}
        self._layout.make(self.options.gpus)
        self._configure()
        self._launch("munged")
        if self.options.accounting:
            self._start_accounting()
        self.start_daemon("munged")
        self.start_daemon("slurmctld")
        self.start_daemon("slurmd")
        self.wait_for_node()

    def stop(self) -> None:
        """End every daemon and what runs of jobs. A next start takes jobs that were not cancelled for running ones."""
        for name in self._running:
            self.thaw(name)
        self.stop_daemon("slurmd")
        kill_everything(self._layout, but={daemon.pid for daemon in self._running.values()})
        for name in reversed(list(self._running)):
            self.stop_daemon(name)
        kill_everything(self._layout)
        if self._ports:
            remove_control_groups(self.node)

    def clean(self) -> None:
        """Stop, and forget all jobs and the accounting: started again it is a new cluster."""
        self.stop()
        for name in ("state", "spool", "mariadb", "log"):
            shutil.rmtree(self._layout.path(name), ignore_errors=True)

    def forget_jobs(self) -> None:
        """Lose what the controller knows: ids start again at 1, and accounting has others of these ids."""
        self.stop_daemon("slurmctld")
        shutil.rmtree(self._layout.path("state"))
        self._layout.make(self.options.gpus)
        self.start_daemon("slurmctld")
        self.wait_for_node()

    def start_daemon(self, name: str) -> None:
        """Start it where it does not run, and return once it answers."""
        self._launch(name)
        ready, child = self.daemons[name].ready, self._children.get(name)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            if child and child.poll() is not None:
                raise ClusterError(f"{name} ended with {child.returncode}; {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise ClusterError(f"{name} did not answer in {PATIENCE_SECONDS:.0f} s; {self._last_words(name)}")
            time.sleep(0.02)

    def stop_daemon(self, name: str, *, kill: bool = False) -> None:
        """End it, as an operator does or as a crash does, and return once it is gone. Its data stays."""
        daemon = self._running.pop(name, None)
        if daemon is None:
            return
        if kill:
            daemon.end(signal.SIGKILL, _STOP_SECONDS)
        else:
            daemon.end(signal.SIGTERM, _STOP_SECONDS)
        if child := self._children.pop(name, None):
            child.wait(_STOP_SECONDS)
        self._remember()

    def restart_daemon(self, name: str) -> None:
        """End it and start it again."""
        self.stop_daemon(name)
        self.start_daemon(name)

    def freeze(self, name: str) -> None:
        """Have it answer nobody, with its connections open."""
        self._running[name].send(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Let it go on."""
        if name in self._running:
            self._running[name].send(signal.SIGCONT)

    def run(
        self, command: Sequence[str], *, stdin: str = "", check: bool = True, seconds: float = PATIENCE_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that finds this cluster. Raises `ClusterError` with what it said where it fails."""
        done = subprocess.run(
            command,
            input=stdin,
            env=self.environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode != 0:
            raise ClusterError(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr or done.stdout}")
        return done

    def wait_for(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
        """Return once the condition holds. Raises `ClusterError` that says what was waited for."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {seconds:.0f} s for {what}; the logs are in {self._layout.path('log')}")
            time.sleep(0.1)

    def node_state(self) -> str:
        """As sinfo has it: `idle`, `mixed`, `drained`, `down*` (an asterisk: it does not answer)."""
        # Not with --nodes: what is asked of one node is answered from what the controller last told of all.
        return self.run(["sinfo", "--noheader", "--format=%T"]).stdout.partition("\n")[0]

    def update_node(self, state: str) -> None:
        """`drain`, `resume`; `down` heals in a second while slurmd runs."""
        self.run(["scontrol", "update", f"nodename={self.node}", f"state={state}", "reason=test"])

    def take_node_down(self) -> None:
        """Crash slurmd and set the node down for good: jobs on it fail with it. `heal` brings it back."""
        self.stop_daemon("slurmd", kill=True)

        def down() -> bool:
            # Where an answer of slurmd was still under way, the node comes back by it.
            self.update_node("down")
            time.sleep(0.3)
            return self.node_state().startswith("down")

        self.wait_for(down, f"node {self.node} to be down")

    def wait_for_node(self) -> None:
        """Return once the node takes jobs; a drain of before is taken back."""

        def up() -> bool:
            state = self.node_state()
            if state.startswith(("drain", "down")) and not state.endswith("*"):
                # A node that came back by itself in between cannot be resumed, and need not be.
                self.run(["scontrol", "update", f"nodename={self.node}", "state=resume"], check=False)
            return state in _UP

        self.wait_for(up, f"node {self.node} to take jobs")

    def change(self, **settings: str) -> None:
        """Have other settings until `heal`, such as MinJobAge="2": commands at once, daemons if they read them anew."""
        self._changed = settings
        self._configure()
        self.run(["scontrol", "reconfigure"])

    def heal(self) -> None:
        """What a test may have left is put right: our settings, all daemons run, the node takes jobs and has none."""
        for name in self._running:
            self.thaw(name)
        for name in self.daemons:
            self.start_daemon(name)
        if self._changed:
            self.change()
        self.wait_for_node()
        self.cancel_jobs()

    def cancel_jobs(self) -> None:
        """Cancel the jobs of everybody, and return once all have ended."""

        def ended() -> bool:
            states = self.run(["squeue", "--noheader", "--format=%T"]).stdout.split()
            if any(state != "COMPLETING" for state in states):
                for state in ("PENDING", "RUNNING", "SUSPENDED"):
                    self.run(["scancel", "--quiet", f"--state={state}"], check=False)
            return not states

        self.wait_for(ended, "all jobs to end")

    def _start_accounting(self) -> None:
        if not (self._layout.database / "mysql").exists():
            install = ("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={self._layout.database}")
            self.run([*install, "--auth-root-authentication-method=socket", "--skip-test-db"])
        self.start_daemon("mariadb")
        self.start_daemon("munged")
        self.start_daemon("slurmdbd")
        known = self.run(["sacctmgr", "--noheader", "--parsable2", "list", "cluster", "format=cluster"]).stdout.split()
        if self.options.name not in known:
            self.run(["sacctmgr", "--immediate", "add", "cluster", self.options.name])

    def _configure(self) -> None:
        options = replace(self.options, settings={**self.options.settings, **self._changed})
        configure(self._layout, options, self._ports)

    def _launch(self, name: str) -> None:
        if name in self._running and self._running[name].alive():
            return
        self._children[name] = start(self.daemons[name].process)
        self._running[name] = Identity.of_child(self._children[name])
        self._remember()

    def _last_words(self, name: str) -> str:
        said = [path for path in (self._layout.log(name), self._layout.output(name)) if path.exists()]
        return "\n".join(f"{path} ends with: {path.read_text(errors='replace')[-1500:]}" for path in said)

    def _remember(self) -> None:
        """For whoever has to stop it: this process may end any moment."""
        daemons = {name: daemon.to_json() for name, daemon in self._running.items()}
        content = {"options": self.options.to_json(), "ports": self._ports, "daemons": daemons}
        temporary = self._layout.remembered.with_suffix(".new")
        temporary.write_text(json.dumps(content))
        temporary.replace(self._layout.remembered)


def _remembered(layout: Layout) -> dict[str, Any]:
    try:
        return dict(json.loads(layout.remembered.read_text()))
    except FileNotFoundError:
        return {"options": {}, "ports": {}, "daemons": {}}
