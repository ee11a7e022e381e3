"""The host's log: one line a complaint, on standard error."""

from __future__ import annotations

import os

from shared.backends.local.moments import now_ms, utc


def complain(sentence: str) -> None:
    """Never fails: whoever reads the log may be gone."""
    try:
        os.write(2, f"{utc(now_ms())} {sentence}\n".encode(errors="backslashreplace"))
    except OSError:
        return
