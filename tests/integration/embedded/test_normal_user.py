"""A stack needs no rights: as a normal user it runs jobs, and serves one tenant."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest

from infra.embedded.processes import Account
from infra.embedded.reach import can_reach
from tests.e2e.stacks import AS_ROOT, Stack, unprivileged_user

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(not AS_ROOT, reason="the other tests run as a normal user already")
def test_a_normal_user_runs_a_stack_without_any_rights() -> None:
    user = unprivileged_user()
    account = Account(user.pw_name, user.pw_uid, user.pw_gid)
    python = _python_for(account)
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chown(folder, account.uid, account.gid)
        stack = Stack(
            Path(folder),
            environ={"PYTHONPATH": os.pathsep.join(_import_path())},
            command=(str(python), "-c", "from services.cli.main import main; main()"),
            account=account,
        )
        stack.up("--virtual-gpus", "1")
        try:
            pids = [row["pid"] for row in stack.processes().values()]
            assert {Path(f"/proc/{pid}").stat().st_uid for pid in pids} == {account.uid}
            assert stack.submit("--no-snapshot", "--", "id", "-u")["state"] == "SUCCEEDED"
            assert json.loads((stack.home / "endpoint.json").read_text())["token"]
            refused = stack.cli("token", "create", "--tenant", "rival", "--user", "eve")
            assert refused.code == 3
            assert "root" in refused.err
        finally:
            stack.down()


def _import_path() -> list[str]:
    """Where another interpreter finds what this one has installed."""
    return [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]


def _python_for(account: Account) -> Path:
    """An interpreter of this version, with everything it needs, that the account can run."""
    same = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (Path(sys.executable), Path("/usr/bin") / same, Path("/usr/local/bin") / same):
        if python.exists() and all(can_reach(account, path) for path in (python, *map(Path, _import_path()))):
            return python
    pytest.skip(f"the user {account.name} can run no {same} here, or cannot read {ROOT}")
