"""Everything in this folder that needs no root also works without it."""

import asyncio
import os
import shutil
import sys
import tempfile

import pytest

from tests.integration.backends.local.harness import AS_ROOT, REPOSITORY

NOBODY_IN_PARTICULAR = 59_999

# The same view that jobs get makes the Python reachable for that user, wherever the repository and it lie.
DROP = f"""
import os, sys
from shared.backends.local import view
assert view.isolate({str(REPOSITORY)!r}, []) == ("mounts", "")
os.setgroups([])
os.setresgid({NOBODY_IN_PARTICULAR}, {NOBODY_IN_PARTICULAR}, {NOBODY_IN_PARTICULAR})
os.setresuid({NOBODY_IN_PARTICULAR}, {NOBODY_IN_PARTICULAR}, {NOBODY_IN_PARTICULAR})
os.execv(sys.executable, [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
"""


@pytest.mark.timeout(1200)  # a hundred tests
@pytest.mark.skipif(not AS_ROOT, reason="runs without root already")
async def test_the_local_backend_works_for_a_normal_user() -> None:
    base = tempfile.mkdtemp(prefix="tidegate-user-", dir="/var/tmp")
    os.chown(base, NOBODY_IN_PARTICULAR, NOBODY_IN_PARTICULAR)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            DROP,
            f"--basetemp={base}/tests",
            "tests/integration/backends/local",
            "-k",
            "not 100_times and not racing_with and not limit",  # long, and all the same to link(2) and to clocks
            cwd=REPOSITORY,
            env={"PATH": os.environ["PATH"], "HOME": base, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
    finally:
        shutil.rmtree(base)
    assert process.returncode == 0, said.decode()
    assert b" passed" in said
