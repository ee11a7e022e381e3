"""Which paths lead to a workstation."""

import pytest

from services.api.visiting import prefix_of, workstation_of


@pytest.mark.parametrize(
    ("path", "workstation"),
    [
        ("/v1/workstations/j1/proxy", "j1"),
        ("/v1/workstations/j1/proxy/", "j1"),
        ("/v1/workstations/j1/proxy/a/../../../../v1/jobs", "j1"),
        ("/v1/workstations/j1/proxy/a\nb", "j1"),
        ("/v1/workstations/j1/proxyx", None),
        ("/v1/workstations/j1/ticket", None),
        ("/v1/workstations/j1/x/proxy/", None),
        ("/v1/workstations//proxy/", None),
        ("/v1/workstations/J1/proxy/", None),
        ("//v1/workstations/j1/proxy/", None),
        ("/v1/jobs", None),
    ],
)
def test_a_path_leads_to_one_workstation_or_to_none(path: str, workstation: str | None) -> None:
    assert workstation_of(path) == workstation


def test_a_workstations_prefix_leads_to_it() -> None:
    assert workstation_of(prefix_of("j1")) == "j1"
