"""The import contracts of pyproject.toml are kept, and each of them would notice a breach."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("services", "shared", "infra")

BREACHES = [
    pytest.param(
        "services/api/breach.py", "import services.metering", "services-are-independent", id="a service imports another"
    ),
    pytest.param(
        "services/cli/breach.py", "import services.api", "services-are-independent", id="the cli imports a service"
    ),
    pytest.param("shared/runtime/breach.py", "import infra.nats", "shared-stands-alone", id="shared imports infra"),
    pytest.param(
        "shared/client/breach.py", "import services.api", "shared-stands-alone", id="shared imports a service"
    ),
    pytest.param("infra/nats/breach.py", "import services.api", "infra-knows-no-service", id="infra imports a service"),
    pytest.param(
        "services/api/breach.py",
        "import infra.embedded.home",
        "only-the-cli-starts-stacks",
        id="a service starts stacks",
    ),
    pytest.param("shared/lifecycle/breach.py", "import asyncio", "decisions-are-pure", id="the lifecycle does I/O"),
    pytest.param(
        "services/breach/domain.py",
        "import shared.runtime.broker",
        "decisions-are-pure",
        id="a decision does I/O through others",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code without what is not code, to break things in."""
    target = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, target / package, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    shutil.copy2(ROOT / "pyproject.toml", target)
    return target


def _lint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`lint-imports` in a folder of its own, where `services` and the others mean the folder's."""
    command = (sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")
    return subprocess.run(
        [*command, "--no-logo", "--no-cache", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_contracts_are_kept(copy: Path) -> None:
    answer = _lint(copy)
    assert answer.returncode == 0, answer.stdout


@pytest.mark.parametrize(("path", "line", "contract"), BREACHES)
def test_a_breach_is_noticed(copy: Path, path: str, line: str, contract: str) -> None:
    breach = copy / path
    breach.parent.mkdir(exist_ok=True)
    breach.write_text(f"{line}\n")
    (breach.parent / "__init__.py").touch()
    try:
        answer = _lint(copy, "--contract", contract)
        assert answer.returncode == 1, answer.stdout + answer.stderr
        assert "breach" in answer.stdout
    finally:
        breach.unlink()


def test_every_service_with_decisions_keeps_them_in_a_module_that_the_contract_names() -> None:
    services = {folder.name for folder in (ROOT / "services").iterdir() if (folder / "__main__.py").exists()} - {"cli"}
    assert services <= {path.parent.name for path in (ROOT / "services").glob("*/domain.py")}
