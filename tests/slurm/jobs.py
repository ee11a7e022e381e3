"""Jobs that tests give to a cluster by themselves, and what the cluster says of them."""

from infra.slurm.cluster import Cluster


def submit(cluster: Cluster, script: str, *options: str) -> str:
    """The id of a new job that runs a shell script. Its output is dropped where no option says otherwise."""
    command = ["sbatch", "--parsable", "--output=/dev/null", *options]
    return cluster.run(command, stdin=f"#!/bin/sh\n{script}\n").stdout.strip()


def state(cluster: Cluster, job: str) -> str:
    """As the controller has it; nothing where it knows no such job."""
    command = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]
    return cluster.run(command, check=False).stdout.strip()


def accounted(cluster: Cluster, job: str, fields: str = "state,exitcode") -> str:
    """As accounting has it, a line per time that it was started."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", f"--jobs={job}"]
    return cluster.run([*command, f"--format={fields}"]).stdout.strip()


def wait_until(cluster: Cluster, job: str, wanted: str) -> None:
    """Wait for a state to which the job comes and in which it stays."""
    cluster.wait_for(lambda: state(cluster, job) == wanted, f"job {job} to be {wanted}")
