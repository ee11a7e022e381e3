"""Times are said so that they are read at a glance."""

from datetime import UTC, datetime, timedelta

import pytest

from services.cli.output import ago

_NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (-2, "0 s ago"),
        (59.9, "59 s ago"),
        (60, "1 min ago"),
        (3599, "59 min ago"),
        (7200, "2 h ago"),
        (86_400, "1 d ago"),
    ],
)
def test_how_long_ago_is_one_number_with_its_unit(seconds: float, said: str) -> None:
    assert ago(_NOW - timedelta(seconds=seconds), _NOW) == said
