"""When a workstation was last used, as its probes saw it: for who decides whether it is idle.

`<root>/open/<submission>.activity.json`, written every few seconds while its command is up:

    {"submission": …, "since": "…Z", "at": "…Z", "probes": {"cpu": "…Z", "heartbeat": null}, "broken": {"gpu": "why"}}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from shared.backends.local import layout
from shared.backends.local.files import read_record


@dataclass(frozen=True, slots=True)
class Activity:
    """What the probes have seen from `since`, when the command started, until `at`, when they last looked.

    `probes` has when each last saw activity, None for not yet. One that could not look is in `broken`, with why, and
    not in `probes`: of what it watches nothing is known, so nobody may call the workstation idle.
    """

    since: datetime
    at: datetime
    probes: Mapping[str, datetime | None]
    broken: Mapping[str, str]

    @property
    def last(self) -> datetime | None:
        """When it was last active: at its start, if never since. None: nothing that could be called idle is known."""
        if self.broken or not self.probes:
            return None
        return max([self.since, *(moment for moment in self.probes.values() if moment is not None)])


def read_activity(root: str | Path, submission: str) -> Activity | None:
    """None where there is no whole record of it: no information, never idleness. Raises OSError when it cannot be
    known."""
    record = read_record(layout.record_path(os.fspath(root), submission, layout.ACTIVITY))
    if record is None or record.get("submission") != submission:
        return None
    since, at = _time(record.get("since")), _time(record.get("at"))
    probes, broken = record.get("probes"), record.get("broken")
    if since is None or at is None or not isinstance(probes, dict) or not isinstance(broken, dict):
        return None
    seen = {str(name): _time(moment) for name, moment in probes.items()}
    if any(moment is not None and seen[str(name)] is None for name, moment in probes.items()):
        return None
    return Activity(since, at, seen, {str(name): str(why) for name, why in broken.items()})


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    return moment.astimezone(UTC) if moment.tzinfo is not None else None
