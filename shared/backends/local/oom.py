"""Did the kernel kill it for want of memory? Known only where the kernel's log may be read, which root may."""

from __future__ import annotations

import os
import re

_KILLED = re.compile(rb"^\d+,\d+,(\d+),[^;]*;.*[Kk]illed process (\d+)\b")
# The log's clock drifts from the monotonic one, but by less than this.
_CLOCK_SLACK_MS = 30_000


def was_killed_for_memory(pid: int, since_monotonic_ms: int) -> bool:
    """True when the kernel's log says that its OOM killer chose `pid` after that moment; False when unknown."""
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        while True:
            try:
                line = os.read(fd, 8192)
            except BrokenPipeError:  # overwritten while we read: the next read goes on with the oldest left
                continue
            except OSError:  # EAGAIN: read to its end
                return False
            if not line:
                return False
            match = _KILLED.match(line)
            if match and int(match[2]) == pid and int(match[1]) // 1000 >= since_monotonic_ms - _CLOCK_SLACK_MS:
                return True
    finally:
        os.close(fd)
