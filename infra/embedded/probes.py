"""Whether a process answers: one short question per kind of server, with the standard library only."""

import http.client
import socket
import struct
import urllib.parse

_PROTOCOL_3 = 196608
_TIMEOUT_SECONDS = 2.0


def why_not_ready(address: str) -> str | None:
    """None where the server at `address` answers as a ready one; else why it does not.

    `http://127.0.0.1:PORT/readyz`, `nats://127.0.0.1:PORT`, `postgres:///folder/of/the/socket`.
    """
    parts = urllib.parse.urlsplit(address)
    try:
        match parts.scheme:
            case "http":
                return _http(parts)
            case "nats":
                return _nats(parts.hostname or "", parts.port or 0)
            case "postgres":
                return _postgres(urllib.parse.unquote(parts.path))
    except (OSError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    raise ValueError(f"a probe knows http, nats and postgres, not {address!r}")


def _http(parts: urllib.parse.SplitResult) -> str | None:
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        body = answer.read(2000).decode(errors="replace").strip()
    finally:
        connection.close()
    return None if answer.status == 200 else f"{answer.status} {body}"


def _nats(host: str, port: int) -> str | None:
    """The server speaks first, and listens only once its streams are recovered."""
    with socket.create_connection((host, port), timeout=_TIMEOUT_SECONDS) as connection:
        greeting = connection.recv(5)
    return None if greeting.startswith(b"INFO ") else f"greeted with {greeting!r}"


def _postgres(folder: str) -> str | None:
    """As pg_isready does: anything but "the database system is starting up" to a startup packet is an answer."""
    body = struct.pack("!i", _PROTOCOL_3) + b"user\0postgres\0database\0postgres\0\0"
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT_SECONDS)
        connection.connect(f"{folder}/.s.PGSQL.5432")
        connection.sendall(struct.pack("!i", len(body) + 4) + body)
        answer = connection.recv(500)
    if answer[:1] == b"R":
        return None
    return answer[5:].replace(b"\0", b" ").decode(errors="replace").strip() or "no answer"
