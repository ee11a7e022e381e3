"""A running service does not carry what only migrations, exports and web servers need."""

import subprocess
import sys

HEAVY = ("alembic", "sqlalchemy", "sqlmodel", "fastapi", "opentelemetry.exporter.otlp", "obstore")


def test_the_service_module_imports_nothing_heavy() -> None:
    program = "import sys, shared.runtime.service; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert [name for name in loaded if name.startswith(HEAVY)] == []
