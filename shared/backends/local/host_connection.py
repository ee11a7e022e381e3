"""One question to the host, over its socket."""

from __future__ import annotations

import asyncio
import json
import os

from shared.backends.local import layout

_REPLY_BYTES_MAX = 64 << 20


class HostUnreachable(Exception):
    """No answer came. Whether the host did what was asked is then unknown, unless it could not even be reached."""


async def ask(root: str, request: dict[str, object], timeout: float) -> dict[str, object]:  # noqa: ASYNC109 - one deadline over connect, send and reply, which the caller cannot set from outside
    """The host's reply. Raises HostUnreachable when there is none within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            return await _ask(root, request)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise HostUnreachable(f"the local host of {root} does not run ({error.strerror}): start the stack") from error
    except TimeoutError as error:
        raise HostUnreachable(f"the local host of {root} gave no answer within {timeout:g} s") from error
    except (OSError, ValueError) as error:
        raise HostUnreachable(f"the local host of {root} could not be asked: {error}") from error


async def _ask(root: str, request: dict[str, object]) -> dict[str, object]:
    # A socket's path may have 107 bytes; this one is short however deep the root lies.
    directory = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        path = f"/proc/self/fd/{directory}/{layout.SOCKET}"
        reader, writer = await asyncio.open_unix_connection(path, limit=_REPLY_BYTES_MAX)
    finally:
        os.close(directory)
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the connection was closed before the answer")
    reply = json.loads(line)
    if not isinstance(reply, dict):
        raise ValueError("the answer is not an object")
    return reply
