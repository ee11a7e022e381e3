"""What a spec may say and would be ignored."""

from pathlib import Path

import pytest

from services.api.offered import SET_BY_THE_BACKEND, not_carried_out, overridden
from shared.backends.local import environment, supervisor, sweeping
from shared.contracts.spec import JobSpec


def test_the_variables_are_those_that_the_local_backend_sets() -> None:
    """If this fails: a variable that a job gives is overridden without a warning, or warned of without a reason."""
    source = Path(supervisor.__file__).read_text()
    own = {part.split('"')[0] for part in source.split('"TIDEGATE_')[1:]}
    given = dict.fromkeys(("HOME", "CUDA_VISIBLE_DEVICES", "PATH", "TMPDIR", "LANG"), "mine")
    built = environment.build(given, own={}, attempt_directory="/a", devices=())
    changed = {name for name, value in given.items() if built[name] != value}
    assert {f"TIDEGATE_{name}" for name in own} | {sweeping.MARKER} | changed == SET_BY_THE_BACKEND


@pytest.mark.parametrize("given", [{}, {"A": "1"}, {"TIDEGATE_OF_MINE": "1"}, {"PATH": "/bin"}])
def test_a_variable_that_the_command_sees_is_not_warned_of(given: dict[str, str]) -> None:
    assert overridden(JobSpec(command=("true",), env=given)) == ()


def test_a_spec_that_is_carried_out_is_not_refused() -> None:
    spec = JobSpec(command=("true",), nodes=1, gpus=2, time_limit_seconds=60, outputs=("x",), inputs=("y",))
    assert not_carried_out(spec) is None
