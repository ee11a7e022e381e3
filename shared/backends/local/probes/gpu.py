"""GPU: is one of its GPUs at work? Asked of nvidia-smi, where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable

from shared.backends.local.probes.probe import Watched

_TOOL = "nvidia-smi"
_SECONDS = 10


class Gpu:
    """Active where any of its GPUs is at work at the moment of the look."""

    name = "gpu"

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask = ask

    def look(self, at_ms: int) -> int | None:
        """The tool prints a percentage for each, one a line; what is none, as `[N/A]`, is no answer."""
        return at_ms if any(int(line) > 0 for line in self._ask().split("\n") if line.strip()) else None


def make(watched: Watched) -> Gpu | None:
    """None without GPUs, and where nothing tells of them."""
    tool = next(
        (path for folder in os.get_exec_path() if os.access(path := f"{folder}/{_TOOL}", os.X_OK)),
        None,
    )
    if tool is None or not watched.devices:
        return None
    return Gpu(lambda: utilization(tool, watched.devices))


def utilization(tool: str, devices: tuple[int, ...]) -> str:
    """What the tool prints of these GPUs. Raises where it fails, or takes too long."""
    import subprocess  # no supervisor shall carry it for the few that have GPUs to ask about

    wanted = ",".join(str(device) for device in devices)
    words = [tool, f"--id={wanted}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=True)
    return answer.stdout
