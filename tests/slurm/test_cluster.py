"""The test cluster is what other tests take it for."""

from pathlib import Path

from infra.slurm.cluster import Cluster
from tests.slurm.jobs import accounted, state, submit, wait_until


def test_a_job_runs_and_accounting_knows_how_it_ended(cluster: Cluster) -> None:
    job = submit(cluster, "exit 3", "--gres=gpu:2")
    wait_until(cluster, job, "FAILED")
    cluster.wait_for(lambda: accounted(cluster, job) == "FAILED|3:0", "accounting to hear of it")
    assert "gres/gpu=2" in accounted(cluster, job, "alloctres")


def test_a_job_is_told_which_gpus_are_its(cluster: Cluster, tmp_path: Path) -> None:
    output = tmp_path / "output"
    job = submit(cluster, "echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:4", f"--output={output}")
    wait_until(cluster, job, "COMPLETED")
    assert output.read_text() == "0,1,2,3\n"


def test_a_job_goes_on_while_the_controller_is_gone(cluster: Cluster, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = submit(cluster, f"until [ -e {gate} ]; do sleep 0.1; done")
    wait_until(cluster, job, "RUNNING")
    cluster.stop_daemon("slurmctld")
    assert cluster.run(["scontrol", "ping"], check=False).returncode == 1
    cluster.start_daemon("slurmctld")
    assert state(cluster, job) == "RUNNING"
    gate.touch()
    wait_until(cluster, job, "COMPLETED")


def test_a_frozen_controller_answers_nobody_until_it_is_thawed(cluster: Cluster) -> None:
    cluster.change(MessageTimeout="2")
    cluster.freeze("slurmctld")
    answer = cluster.run(["squeue"], check=False)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert "timed out" in answer.stderr
    cluster.thaw("slurmctld")
    assert cluster.run(["squeue", "--noheader"]).stdout == ""


def test_jobs_run_without_slurmdbd_and_are_accounted_for_once_it_is_back(cluster: Cluster) -> None:
    cluster.stop_daemon("slurmdbd")
    job = submit(cluster, "exit 4")
    wait_until(cluster, job, "FAILED")
    assert cluster.run(["sacct"], check=False).returncode == 1
    cluster.start_daemon("slurmdbd")
    cluster.wait_for(lambda: accounted(cluster, job) == "FAILED|4:0", "accounting to hear of it")


def test_a_drained_node_takes_no_jobs_until_it_is_resumed(cluster: Cluster) -> None:
    cluster.update_node("drain")
    cluster.wait_for(lambda: cluster.node_state() == "drained", "the node to be drained")
    job = submit(cluster, "true")
    assert state(cluster, job) == "PENDING"
    cluster.update_node("resume")
    wait_until(cluster, job, "COMPLETED")


def test_a_job_fails_with_the_node_that_goes_down(cluster: Cluster) -> None:
    job = submit(cluster, "sleep 1000", "--no-requeue")
    wait_until(cluster, job, "RUNNING")
    cluster.take_node_down()
    wait_until(cluster, job, "NODE_FAIL")
    cluster.start_daemon("slurmd")
    cluster.wait_for_node()
    assert cluster.node_state() == "idle"


def test_a_job_of_a_higher_partition_takes_the_place_of_lower_ones(cluster: Cluster) -> None:
    lost = submit(cluster, "sleep 1000", "--gres=gpu:2", "--partition=low")
    requeued = submit(cluster, "sleep 1000", "--gres=gpu:2", "--partition=lowrq")
    wait_until(cluster, lost, "RUNNING")
    wait_until(cluster, requeued, "RUNNING")
    wins = submit(cluster, "sleep 1000", "--gres=gpu:4", "--partition=high")
    wait_until(cluster, wins, "RUNNING")
    wait_until(cluster, lost, "PREEMPTED")
    wait_until(cluster, requeued, "PENDING")


def test_the_controller_forgets_an_ended_job_when_it_is_told_to(cluster: Cluster) -> None:
    job = submit(cluster, "true")
    wait_until(cluster, job, "COMPLETED")
    cluster.change(MinJobAge="2")
    cluster.wait_for(lambda: state(cluster, job) == "", "the job to be forgotten")


def test_ids_start_again_when_the_controller_has_lost_its_state(cluster: Cluster) -> None:
    for _ in range(2):
        submit(cluster, "true", "--hold")
    cluster.forget_jobs()
    assert submit(cluster, "true", "--hold") == "1"


def test_what_a_test_leaves_behind_is_put_right(cluster: Cluster) -> None:
    held = submit(cluster, "true", "--hold")
    running = submit(cluster, "trap '' TERM; while :; do sleep 1; done")
    wait_until(cluster, running, "RUNNING")
    cluster.update_node("drain")
    cluster.stop_daemon("slurmdbd")
    cluster.freeze("slurmctld")
    cluster.heal()
    assert cluster.node_state() == "idle"
    assert (state(cluster, held), state(cluster, running)) == ("CANCELLED", "CANCELLED")
    assert cluster.run(["sacct"]).returncode == 0


def test_the_kernel_kills_a_job_above_its_memory(cluster_with_memory_limits: Cluster) -> None:
    cluster = cluster_with_memory_limits
    job = submit(cluster, "head -c 200m /dev/zero | tail", "--mem=50")
    wait_until(cluster, job, "OUT_OF_MEMORY")
