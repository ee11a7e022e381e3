"""The commands that a newcomer and CI rely on are there, and bringing uv works without pip."""

import hashlib
import http.server
import io
import json
import os
import platform
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WHEEL = f"uv-99.0.0-py3-none-manylinux_2_17_{platform.machine()}.whl"


@pytest.mark.parametrize(
    "target", ["help", "setup", "demo", "up", "down", "check", "test", "test-long", "bench", "bench-peers"]
)
def test_make_help_names_every_command(target: str) -> None:
    answer = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"make {target} " in answer.stdout


def test_ci_checks_before_it_tests() -> None:
    script = (ROOT / ".ci/run").read_text()
    assert os.access(ROOT / ".ci/run", os.X_OK)
    assert script.index("make check") < script.index("make test")


class Index:
    """A package index on this machine that has one wheel of uv."""

    def __init__(self) -> None:
        body = io.BytesIO()
        with zipfile.ZipFile(body, "w") as wheel:
            wheel.writestr("uv-99.0.0.data/scripts/uv", "#!/bin/sh\necho uv 99.0.0\n")
        self.wheel = body.getvalue()
        self.digest = hashlib.sha256(self.wheel).hexdigest()
        self.as_html = False
        index = self

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body, kind = index.answer(self.path)
                self.send_response(200)
                self.send_header("content-type", kind)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def answer(self, path: str) -> tuple[bytes, str]:
        if path.endswith(".whl"):
            return self.wheel, "application/zip"
        if self.as_html:
            return f'<a href="../../{WHEEL}#sha256={self.digest}">{WHEEL}</a>'.encode(), "text/html"
        file = {"filename": WHEEL, "url": f"../../{WHEEL}", "hashes": {"sha256": self.digest}, "yanked": False}
        return json.dumps({"files": [file]}).encode(), "application/vnd.pypi.simple.v1+json"


@pytest.fixture
def index() -> Iterator[Index]:
    index = Index()
    threading.Thread(target=index.server.serve_forever, daemon=True).start()
    yield index
    index.server.shutdown()
    index.server.server_close()


def bring_uv(index: Index, target: Path) -> subprocess.CompletedProcess[str]:
    """Run the bootstrap with an interpreter that has the standard library only."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "infra/bootstrap_uv.py", target],
        cwd=ROOT,
        env={"UV_DEFAULT_INDEX": index.url, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("as_html", [pytest.param(False, id="a JSON index"), pytest.param(True, id="an HTML index")])
def test_uv_is_brought_without_pip(index: Index, tmp_path: Path, as_html: bool) -> None:
    index.as_html = as_html
    brought = bring_uv(index, tmp_path / "bin" / "uv")
    assert brought.returncode == 0, brought.stderr
    assert subprocess.run([tmp_path / "bin" / "uv"], capture_output=True, text=True, check=True).stdout == "uv 99.0.0\n"


def test_a_wheel_that_is_not_what_the_index_says_is_not_installed(index: Index, tmp_path: Path) -> None:
    index.wheel += b"changed"
    brought = bring_uv(index, tmp_path / "uv")
    assert brought.returncode != 0
    assert "sha256" in brought.stderr
    assert not (tmp_path / "uv").exists()


def test_an_index_that_cannot_be_reached_is_named_with_what_to_do(index: Index, tmp_path: Path) -> None:
    index.url = "http://127.0.0.1:9/simple"
    brought = bring_uv(index, tmp_path / "uv")
    assert brought.returncode != 0
    assert index.url in brought.stderr
    assert "UV_DEFAULT_INDEX" in brought.stderr
