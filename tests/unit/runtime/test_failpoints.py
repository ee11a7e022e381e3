"""The registry of failpoints is what the code passes, no more and no less."""

import ast
from collections.abc import Iterator
from pathlib import Path

from shared.contracts.subjects import SERVICES
from shared.runtime.failpoints import POINTS, RUNNER, SUPERVISOR, lines

ROOT = Path(__file__).resolve().parents[3]
BACKENDS = ROOT / "shared/backends"
RUNTIME = ROOT / "shared/runtime"
CODE: dict[str, tuple[Path, ...]] = {
    **{service: (ROOT / "services" / service, RUNTIME) for service in SERVICES},
    "launcher": (ROOT / "services/launcher", RUNTIME, BACKENDS),
    RUNNER: (BACKENDS,),
    SUPERVISOR: (BACKENDS,),
}
"""Where the code of each that passes points lies."""


def passed_in(folder: Path) -> Iterator[tuple[str, ast.expr]]:
    """(place, argument) of every call of `reach`."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) == "reach":
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.args[0]


def _name(function: ast.expr) -> str | None:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def test_every_point_is_passed_in_the_code_of_each_that_it_names() -> None:
    passed = {
        folder: {argument.value for _, argument in passed_in(folder) if isinstance(argument, ast.Constant)}
        for folder in {folder for folders in CODE.values() for folder in folders}
    }
    missing = [
        f"{service}.{point}"
        for point, row in POINTS.items()
        for service in row.services
        if not any(point in passed[folder] for folder in CODE[service])
    ]
    assert missing == []


def test_whoever_is_passed_is_registered() -> None:
    unknown = [
        f"{place}: {ast.unparse(argument)}"
        for folder in (ROOT / "services", ROOT / "shared", ROOT / "infra")
        for place, argument in passed_in(folder)
        if not (isinstance(argument, ast.Constant) and argument.value in POINTS)
    ]
    assert unknown == []


def test_each_point_is_listed_with_who_passes_it_and_what_it_means() -> None:
    listed = lines()
    assert [line.split()[0] for line in listed] == list(POINTS)
    assert all(row.what in line for line, row in zip(listed, POINTS.values(), strict=True))
