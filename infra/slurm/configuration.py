"""The folder of a cluster: where its files lie, and the configuration that is written into it."""

import os
import secrets
import shutil
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from infra.slurm.options import Options

_TEMPLATES: Final = Path(__file__).parent / "templates"
_LONGEST_SOCKET: Final = 107  # of a unix socket's path, see unix(7)
_GPU_MAJOR: Final = 195  # the number of NVIDIA's driver; slurmd only looks whether it is a device


class ClusterError(Exception):
    """The cluster does not do what it is to do; the text names the log that says more."""


@dataclass(frozen=True)
class Layout:
    """Everything of one cluster below one folder."""

    root: Path

    def path(self, name: str) -> Path:
        """A folder of the cluster: `conf`, `run`, `log`, `state`, `spool`, `mariadb`, `dev`."""
        return self.root / name

    @property
    def slurm_conf(self) -> Path:
        return self.root / "conf" / "slurm.conf"

    @property
    def munge_key(self) -> Path:
        return self.root / "conf" / "munge.key"

    @property
    def munge_socket(self) -> Path:
        return self.root / "run" / "munge"

    @property
    def database_socket(self) -> Path:
        return self.root / "mariadb" / "socket"

    @property
    def database(self) -> Path:
        return self.root / "mariadb" / "data"

    @property
    def remembered(self) -> Path:
        """What a cluster was started with and which processes are its."""
        return self.root / "cluster.json"

    def log(self, daemon: str) -> Path:
        """Where a daemon says what it does."""
        return self.root / "log" / f"{daemon}.log"

    def output(self, daemon: str) -> Path:
        """What a daemon prints, which is what its log does not have."""
        return self.root / "log" / f"{daemon}.out"

    def make(self, gpus: int) -> None:
        """Make what is missing. Raises `ClusterError` where the folder is of no use."""
        if len(os.fsencode(self.database_socket)) > _LONGEST_SOCKET:
            raise ClusterError(f"{self.root} is too long a path for the sockets in it: choose a shorter one")
        for name in ("conf", "run", "log", "state", "spool", "mariadb", "dev"):
            self.path(name).mkdir(parents=True, exist_ok=True)
        for folder in (self.root, *self.root.parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise ClusterError(
                    f"{folder} is closed to other users, who have to reach sockets in it: choose another"
                )
        shutil.chown(self.path("mariadb"), "mysql", "mysql")
        for number in range(gpus):
            device = self.path("dev") / f"gpu{number}"
            if not device.exists():
                os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(_GPU_MAJOR, number))
        if not self.munge_key.exists():
            _write(self.munge_key, secrets.token_bytes(128), 0o400)


def node_name(ports: Mapping[str, int]) -> str:
    """Of the one node: no other cluster of this machine has it, nor a control group of that name."""
    return f"tide{ports['slurmd']}"


def configure(layout: Layout, options: Options, ports: Mapping[str, int]) -> None:
    """Write the files that the daemons and commands read."""
    known = {
        "accounting": "accounting_storage/slurmdbd" if options.accounting else "accounting_storage/none",
        "cluster": options.name,
        "host": socket.gethostname().partition(".")[0],
        "min_job_age": str(options.min_job_age_seconds),
        "munge_socket": str(layout.munge_socket),
        "requeue_seconds": str(options.requeue_seconds),
        **{name: str(layout.path(name)) for name in ("log", "run", "state", "spool")},
        **{f"{name}_port": str(port) for name, port in ports.items()},
    }
    conf = layout.path("conf")
    text = Template((_TEMPLATES / "slurm.conf").read_text()).substitute(known)
    text = with_settings(text, _settings(layout, options, ports))
    _write(layout.slurm_conf, (text + _nodes(layout, options, ports)).encode())
    _write(conf / "slurmdbd.conf", _filled("slurmdbd.conf", known), 0o600)
    _write(conf / "cgroup.conf", _filled("cgroup.conf", known))
    gres = f"Name=gpu File={layout.path('dev')}/gpu[0-{options.gpus - 1}]\n" if options.gpus else ""
    _write(conf / "gres.conf", gres.encode())


def with_settings(text: str, settings: Mapping[str, str]) -> str:
    """Settings in their template's place, or after it: of a key that stands twice every command would complain."""
    new = {key.lower(): f"{key}={value}" for key, value in settings.items()}
    lines = [new.pop(line.partition("=")[0].lower(), line) for line in text.splitlines()]
    return "\n".join([*lines, *new.values(), ""])


def _settings(layout: Layout, options: Options, ports: Mapping[str, int]) -> Mapping[str, str]:
    settings: dict[str, str] = {}
    if options.accounting:
        settings |= {
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(ports["slurmdbd"]),
            "AccountingStoragePass": str(layout.munge_socket),  # AuthInfo is not used for what goes to slurmdbd
            "AccountingStoreFlags": "job_comment,job_script,job_env",
        }
        settings |= {"AccountingStorageTRES": "gres/gpu"} if options.gpus else {}
    if options.memory_limits:
        settings |= {"TaskPlugin": "task/cgroup", "JobAcctGatherParams": "UsePss"}
    settings |= {"GresTypes": "gpu"} if options.gpus else {}
    return {**settings, **options.settings}


def _nodes(layout: Layout, options: Options, ports: Mapping[str, int]) -> str:
    node = node_name(ports)
    gpus = f" Gres=gpu:{options.gpus}" if options.gpus else ""
    host = socket.gethostname().partition(".")[0]
    lines = [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports['slurmd']} CPUs={options.cpus} Boards=1 "
        f"SocketsPerBoard=1 CoresPerSocket={options.cpus} ThreadsPerCore=1 RealMemory={options.memory_mb}{gpus} "
        "State=UNKNOWN"
    ]
    for name, more in options.partitions.items():
        lines.append(f"PartitionName={name} Nodes={node} DefMemPerCPU=500 {more}")
    return "\n".join([*lines, ""])


def _filled(template: str, known: Mapping[str, str]) -> bytes:
    return Template((_TEMPLATES / template).read_text()).substitute(known).encode()


def _write(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Whole or not at all: commands read the file while it is written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(path)
