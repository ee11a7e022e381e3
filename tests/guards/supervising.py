"""Supervisors as the tests of the local backend fork them, with a guard of theirs taken out.

python -m tests.guards.supervising {whole,claim,revoked}   (orders on standard input)
"""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final
from unittest.mock import patch

from shared.backends.local import recording
from shared.backends.local.files import write_record
from shared.backends.local.messages import LaunchRequest
from tests.integration.backends.local import supervising
from tests.integration.backends.local.harness import REPOSITORY, Backend


async def supervise(backend: Backend, requests: Sequence[LaunchRequest], *, without: str, revoked: bool) -> bool | None:
    """Let supervisors of these go at once; with `revoked` the attempt was revoked before, and that saw a claim or not.

    A host would have looked for both before it forked: this is what happens where the world changes after its look.
    """
    given = {
        "root": backend.client.root,
        "rounds": [{"orders": [one.fields() for one in requests], "revoke_after": "before" if revoked else None}],
    }
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, "-m", "tests.guards.supervising", without)
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe, cwd=REPOSITORY)
    said, _ = await process.communicate(json.dumps(given).encode())
    assert process.returncode == 0
    (saw_a_claim,) = json.loads(said)
    return saw_a_claim  # type: ignore[no-any-return] # true, false or null, as the program prints


def _claim_by_anybody(path: str, record: dict[str, object], **how: Any) -> bool:
    write_record(path, record, **how)
    return True


_WITHOUT: Final[Mapping[str, Callable[[], AbstractContextManager[object]]]] = {
    "whole": nullcontext,
    "claim": lambda: patch.object(recording, "create_record", _claim_by_anybody),
    "revoked": lambda: patch.object(recording.Recorder, "is_revoked", lambda _: False),
}


def main() -> None:
    """Take the guard out, then go on as the whole program does."""
    with _WITHOUT[sys.argv[1]]():
        supervising.main()


if __name__ == "__main__":
    main()
