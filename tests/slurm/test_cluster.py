"""The test cluster is what tests take it for."""

from infra.slurm.cluster import Cluster


def submit(cluster: Cluster, script: str, *options: str) -> str:
    """The id of a new job."""
    answer = cluster.run(["sbatch", "--parsable", "--output=/dev/null", *options], stdin=f"#!/bin/sh\n{script}\n")
    return answer.stdout.strip()


def state(cluster: Cluster, job: str) -> str:
    """As the controller has it."""
    return cluster.run(["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"]).stdout.strip()


def accounted(cluster: Cluster, job: str, field: str) -> str:
    """As accounting has it."""
    command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", f"--format={field}"]
    return cluster.run(command).stdout.strip()


def test_a_job_runs_and_accounting_knows_how_it_ended(cluster: Cluster) -> None:
    job = submit(cluster, "exit 3", "--gres=gpu:2")
    cluster.wait_for(lambda: state(cluster, job) == "FAILED", "the job to end")
    cluster.wait_for(lambda: accounted(cluster, job, "state,exitcode") == "FAILED|3:0", "accounting to hear of it")
    assert "gres/gpu=2" in accounted(cluster, job, "alloctres")
