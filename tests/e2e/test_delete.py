"""Deleting a job: its outputs and files are gone from the machine, what fences its attempt is not."""

import os

import pytest

from infra.embedded.home import Home
from services.stager.removal import is_fence
from shared.client.errors import Refused
from shared.contracts.spec import JobSpec, SubmitRequest
from tests.e2e.stacks import Stack, eventually


def test_a_deleted_jobs_files_are_removed_and_its_claim_stays(stack: Stack) -> None:
    script = "mkdir model deep; echo 1 > model/w; touch deep/f; chmod 0 deep; ln -s / root; echo said"
    with stack.client() as client:
        spec = JobSpec(command=("sh", "-c", script), outputs=("model",))
        job = client.wait(client.submit(SubmitRequest(spec=spec)).id)
        assert job.state == "SUCCEEDED", job.message
        home = Home(stack.home)
        outputs, work = home.blobs / job.tenant / "outputs" / job.id, home.local / "work" / job.tenant / job.id

        def files() -> list[str]:
            return [name for _, _, names in os.walk(work) for name in names]

        assert outputs.is_dir()
        assert "w" in files()
        assert stack.cli("delete", "--yes", job.id).code == 0
        eventually(lambda: not outputs.exists(), "its outputs to go")
        eventually(lambda: all(is_fence(name) for name in files()), "its files to go")
        assert "claim" in files()
        with pytest.raises(Refused, match="was deleted at"):
            client.outputs(job.id)
