"""What the watcher is told at its start."""

import os
from pathlib import Path
from typing import Final

from pydantic import Field

from shared.runtime.settings import ServiceSettings

_SLOTS_AT_LEAST: Final = 16
_SLOTS_PER_CORE: Final = 8


def _usual_slots() -> int:
    return max(_SLOTS_AT_LEAST, _SLOTS_PER_CORE * (os.cpu_count() or 1))


class WatcherSettings(ServiceSettings):
    """The settings of every service, and the watcher's own."""

    local_root: Path
    """The root directory of the local backend, as the launcher has it."""
    local_slots: int = Field(default_factory=_usual_slots, ge=1)
    """How many jobs this machine runs at once, at most what its host allows: 8 a core, 16 at least, where not given."""
    lost_after_seconds: float = Field(default=60, ge=1)
    """So long must complete observations show nothing of a submission before it is lost."""
