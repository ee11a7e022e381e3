"""One line per record, whatever it holds, and no secret in it."""

import json
import logging
import re
from collections.abc import Iterator

import pytest

from shared.runtime.logs import Log, configure


@pytest.fixture
def own_handlers() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_handlers")
def test_text_lines_are_readable_and_single(capfd: pytest.CaptureFixture[str]) -> None:
    configure("api", "INFO", "text")
    Log("tidegate").info("batch handled", consumer="api", count=3, reason="two words\nand a line")
    [line] = capfd.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT[\d:.]+Z INFO    api: batch handled consumer=api count=3 reason=\"two words\\nand a line\"",
        line,
    )


@pytest.mark.usefixtures("own_handlers")
def test_json_lines_hold_fields_and_the_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    configure("api", "INFO", "json")
    try:
        raise ValueError("broken")
    except ValueError as error:
        Log("tidegate").error("loop failed", error=error, loop="relay")
    [line] = capfd.readouterr().err.splitlines()
    record = json.loads(line)
    assert (record["level"], record["service"], record["event"], record["loop"]) == (
        "ERROR",
        "api",
        "loop failed",
        "relay",
    )
    assert "ValueError: broken" in record["traceback"]


@pytest.mark.usefixtures("own_handlers")
@pytest.mark.parametrize("shape", ["text", "json"])
def test_secrets_are_blotted_out_wherever_they_stand(capfd: pytest.CaptureFixture[str], shape: str) -> None:
    configure("api", "INFO", "json" if shape == "json" else "text", ["hush hush", "postgresql://api:pw@/x"])
    try:
        raise ValueError("login with hush hush failed")
    except ValueError as error:
        Log("tidegate").error("said hush hush", error=error, dsn="postgresql://api:pw@/x")
    said = capfd.readouterr().err
    assert "hush hush" not in said
    assert "pw@" not in said
    assert said.count("***") >= 3


@pytest.mark.usefixtures("own_handlers")
def test_levels_below_the_one_set_and_chatter_of_libraries_are_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    configure("api", "INFO", "text")
    configure("api", "INFO", "text")
    Log("tidegate").debug("detail")
    logging.getLogger("library").info("chatter")
    logging.getLogger("library").warning("it matters")
    assert [line.split(": ")[1] for line in capfd.readouterr().err.splitlines()] == ["it matters"]
