"""Whoever uses the command line is told commands, not routes."""

import pytest

from services.cli.wording import in_commands, permitted
from shared.lifecycle.actions import Action
from tests.unit.cli.given import JOB


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("there is no job 'j1': GET /v1/jobs lists those of your tenant", "`tidegate ls` lists those"),
        ("there is no pipeline 'p1': GET /v1/pipelines lists those", "`tidegate pipelines` lists those"),
        (f"no output 'x': GET /v1/jobs/{JOB}/outputs lists them", f"`tidegate outputs {JOB}` lists them"),
        ("there is no token 'x': GET /v1/tokens lists their ids", "`tidegate token ls` lists"),
        (
            "there is nothing at /v1/jobs/j1/fly: GET /v1/openapi.json lists what there is",
            "the server does not know this",
        ),
    ],
)
def test_a_route_is_told_as_its_command(given: str, said: str) -> None:
    told = in_commands(given)
    assert said in told
    assert "/v1/" not in told


def test_a_hint_is_shown_unless_its_retry_would_be_refused() -> None:
    hint = f"start it again with: tidegate retry {JOB}"
    refused = {"retry": Action(allowed=False, why_not="its snapshot is gone: submit it again")}
    assert permitted(hint, refused) == "it cannot be retried: its snapshot is gone: submit it again"
    assert permitted(hint, {"retry": Action(allowed=True)}) == hint
    assert permitted("read its last lines", refused) == "read its last lines"
    assert permitted(None, refused) is None
