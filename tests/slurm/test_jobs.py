"""Jobs on a real Slurm cluster, through the whole stack: what became of them is what is told."""

from pathlib import Path

from shared.client.views import JobView
from tests.slurm.stacks import SlurmStack, accounted_gpu_seconds


def ended(job: JobView) -> tuple[str, str | None, int | None, int | None]:
    """How, and why."""
    return (job.state, job.end_reason, job.exit.code, job.exit.signal)


def test_a_job_runs_on_the_cluster_and_its_outputs_come_back(hpc: SlurmStack, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "run.sh").write_text("echo learned on $CUDA_VISIBLE_DEVICES; mkdir model; echo so >model/a; sleep 1\n")
    shown = hpc.stack.submit("--coretype", "gpu", "--gpus", "2", "--out", "model/**", "--", "sh", "run.sh", cwd=project)
    assert shown["state"] == "SUCCEEDED", shown["message"]
    job = hpc.client.job(shown["id"])
    assert [stage.status for stage in job.stages] == ["passed"] * 5
    assert (job.backend.name, job.backend.cluster, job.backend.raw_state) == ("slurm", "hpc", "COMPLETED")
    assert hpc.log(job.id) == "learned on 0,1\n"
    assert hpc.stack.cli("outputs", "get", job.id, "--to", str(tmp_path)).code == 0
    assert (tmp_path / "model" / "a").read_text() == "so\n"
    assert hpc.slurm_ids(job.id) == [job.backend.ref]
    assert float(job.gpu_seconds) == accounted_gpu_seconds(hpc.cluster, job.backend.ref or "") >= 2
