"""CPU: does it compute?"""

from __future__ import annotations

import os
from collections.abc import Callable

from shared.backends.local import processes
from shared.backends.local.moments import monotonic_ms
from shared.backends.local.probes.probe import Watched

SHARE_OF_A_CORE = 0.05
# proc(5), /proc/PID/stat: utime, stime, cutime and cstime are fields 14 to 17, and the third is the first here.
_TIMES = slice(11, 15)
_CHILDRENS_TIMES = slice(13, 15)


class Cpu:
    """Active where all its processes together used more than 5 % of one core since the look before."""

    name = "cpu"

    def __init__(self, cpu_ms: Callable[[], int], clock: Callable[[], int] = monotonic_ms) -> None:
        self._cpu_ms, self._clock = cpu_ms, clock
        self._before: tuple[int, int] | None = None

    def look(self, at_ms: int) -> int | None:
        """The first look has nothing to compare with."""
        now = (self._clock(), self._cpu_ms())
        before, self._before = self._before, now
        if before is None or now[0] <= before[0]:
            return None
        return at_ms if (now[1] - before[1]) / (now[0] - before[0]) > SHARE_OF_A_CORE else None


def make(watched: Watched) -> Cpu:
    """Of all processes of the workstation."""
    return Cpu(lambda: used_ms(watched))


def used_ms(watched: Watched) -> int:
    """CPU time of everything that is below its supervisor or was: what has ended is counted by who waited for it."""
    ticks = _ticks(watched.supervisor, _CHILDRENS_TIMES)
    for pid in processes.descendants(watched.supervisor, apart_from=(watched.prober,)):
        ticks += _ticks(pid, _TIMES)
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")


def _ticks(pid: int, times: slice) -> int:
    fields = processes.stat_fields(pid)
    return 0 if fields is None else sum(int(ticks) for ticks in fields[times])
