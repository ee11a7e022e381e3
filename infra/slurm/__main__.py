"""A test cluster by hand: `python -m infra.slurm start DIR`, `stop DIR`, `env DIR`. See README.md."""

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from infra.slurm.cluster import Cluster
from infra.slurm.configuration import ClusterError
from infra.slurm.options import Options


def main() -> int:
    """The exit code."""
    chosen = _parser().parse_args()
    try:
        chosen.does(chosen)
    except ClusterError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _start(chosen: argparse.Namespace) -> None:
    options = Options(
        cpus=chosen.cpus,
        gpus=chosen.gpus,
        min_job_age_seconds=chosen.min_job_age,
        accounting=not chosen.no_accounting,
        memory_limits=chosen.memory_limits,
        settings=dict(setting.split("=", 1) for setting in chosen.set),
    )
    cluster = Cluster(chosen.folder, options)
    if chosen.clean:
        cluster.clean()
    cluster.start()
    print(f'node {cluster.node} takes jobs. For a shell: eval "$(python -m infra.slurm env {cluster.root})"')


def _stop(chosen: argparse.Namespace) -> None:
    cluster = _started(chosen.folder)
    try:
        cluster.cancel_jobs()
    except ClusterError as error:
        print(f"the jobs were not cancelled first: {error}", file=sys.stderr)
    cluster.stop()


def _env(chosen: argparse.Namespace) -> None:
    print(f"export SLURM_CONF={shlex.quote(_started(chosen.folder).environment['SLURM_CONF'])}")


def _guard(chosen: argparse.Namespace) -> None:
    sys.stdin.buffer.read()
    Cluster(chosen.folder).stop()
    shutil.rmtree(chosen.folder)


def _started(folder: Path) -> Cluster:
    cluster = Cluster(folder)
    if not cluster.was_started:
        raise ClusterError(f"no cluster was started in {folder}")
    return cluster


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m infra.slurm", description=__doc__)
    commands = parser.add_subparsers(required=True)
    standard = Options()

    start = commands.add_parser("start", help="start what does not run, and return once the node takes jobs")
    start.add_argument("--clean", action="store_true", help="forget all jobs and the accounting first: ids start at 1")
    start.add_argument(
        "--cpus", type=int, default=standard.cpus, help="jobs of one core that run at once (%(default)s)"
    )
    start.add_argument("--gpus", type=int, default=standard.gpus, help="GPUs, with no device behind them (%(default)s)")
    start.add_argument(
        "--min-job-age",
        type=int,
        default=standard.min_job_age_seconds,
        metavar="SECONDS",
        help="how long an ended job is remembered (%(default)s)",
    )
    start.add_argument("--no-accounting", action="store_true", help="leave out slurmdbd and MariaDB")
    start.add_argument("--memory-limits", action="store_true", help="have the kernel kill a job above its memory")
    start.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="more of slurm.conf, or another value than ours"
    )
    start.set_defaults(does=_start)

    stop = commands.add_parser("stop", help="cancel the jobs and end every daemon; the folder stays")
    stop.set_defaults(does=_stop)
    env = commands.add_parser("env", help="print what a shell needs to use the cluster")
    env.set_defaults(does=_env)
    guard = commands.add_parser("guard", help="end the cluster and remove its folder once the input ends")
    guard.set_defaults(does=_guard)
    for command in (start, stop, env, guard):
        command.add_argument("folder", type=Path, metavar="DIR")
    return parser


if __name__ == "__main__":
    sys.exit(main())
