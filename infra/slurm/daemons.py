"""The daemons of a cluster: how each is run, in the order of their start, and when it is ready."""

import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.embedded.processes import Process
from infra.slurm.configuration import Layout, node_name
from infra.slurm.missing import SEARCHED

ROOT_VARIABLE: Final = "TIDEGATE_TEST_CLUSTER"
"""In the environment of every daemon and of the steps that slurmd starts: the cluster's folder."""
_LOCALE: Final = {"LANG": "C.UTF-8", "HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": "/bin/bash"}


@dataclass(frozen=True)
class Daemon:
    """One of them."""

    process: Process
    ready: Callable[[], bool]


def environment(layout: Layout) -> dict[str, str]:
    """What a command needs to ask this cluster; nothing of who runs the tests."""
    return {"PATH": SEARCHED, "SLURM_CONF": str(layout.slurm_conf), **_LOCALE}


def daemons(layout: Layout, ports: Mapping[str, int], *, accounting: bool) -> dict[str, Daemon]:
    """All of them by name, in the order in which they are started."""
    run = layout.path("run")
    munged = (
        *("munged", "--foreground", "--force", f"--socket={layout.munge_socket}", f"--key-file={layout.munge_key}"),
        *(f"--pid-file={run}/munged.pid", f"--log-file={layout.log('munged')}", f"--seed-file={run}/munged.seed"),
        "--num-threads=4",
    )
    mariadb = (
        *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={layout.database}"),
        *(f"--socket={layout.database_socket}", f"--pid-file={layout.database.parent}/pid", "--skip-networking"),
        *("--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=900"),
    )
    found = {
        "munged": Daemon(_process(layout, "munged", munged), lambda: _answers(layout.munge_socket)),
        "mariadb": Daemon(_process(layout, "mariadb", mariadb), lambda: _answers(layout.database_socket)),
        "slurmdbd": Daemon(
            _process(layout, "slurmdbd", ("slurmdbd", "-D")), lambda: _answers(("127.0.0.1", ports["slurmdbd"]))
        ),
        "slurmctld": Daemon(_process(layout, "slurmctld", ("slurmctld", "-D")), lambda: _pings(layout)),
        "slurmd": Daemon(
            _process(layout, "slurmd", ("slurmd", "-D", "-N", node_name(ports))),
            lambda: _answers(("127.0.0.1", ports["slurmd"])),
        ),
    }
    return found if accounting else {name: found[name] for name in found if name not in ("mariadb", "slurmdbd")}


def _process(layout: Layout, name: str, command: tuple[str, ...]) -> Process:
    more = {
        ROOT_VARIABLE: str(layout.root),
        "MYSQL_UNIX_PORT": str(layout.database_socket),  # the database's client takes its socket for `localhost`
    }
    return Process(name, command, layout.output(name), environment(layout) | more, outlives=True)


def _answers(address: Path | tuple[str, int]) -> bool:
    family = socket.AF_UNIX if isinstance(address, Path) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as door:
        door.settimeout(5)
        try:
            door.connect(str(address) if isinstance(address, Path) else address)
        except OSError:
            return False
    return True


def _pings(layout: Layout) -> bool:
    try:
        ping = subprocess.run(
            ["scontrol", "ping"], env=environment(layout), capture_output=True, timeout=15, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return ping.returncode == 0
