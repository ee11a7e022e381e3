"""Where a workstation listens, and the secret that opens it: for who leads its user there, and for nobody else.

The secret is in one file of mode 0600 and in the command's environment. It belongs in no event, table or log.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from shared.backends.local import layout
from shared.backends.local.files import read_record
from shared.backends.local.listener import users_at


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A loopback port of this machine, and what its command was given to know its user by."""

    port: int
    secret: str = field(repr=False)


def read_endpoint(root: str | Path, submission: str) -> Endpoint | None:
    """Of a workstation whose command is up or about to be; None where there is none. Raises OSError when it cannot be
    known."""
    record = read_record(layout.record_path(os.fspath(root), submission, layout.ENDPOINT))
    if record is None or record.get("submission") != submission:
        return None
    port, secret = record.get("port"), record.get("secret")
    if type(port) is not int or not 0 < port < 65536 or not isinstance(secret, str) or not secret:
        return None
    return Endpoint(port, secret)


def open_endpoint(root: str | Path, submission: str) -> Endpoint | None:
    """The same once its own command listens there. Between its choice and that, and after its end, the port is
    anybody's: who is led to it then would show the secret to another user of this machine, and see that one's pages."""
    endpoint = read_endpoint(root, submission)
    intent = read_record(layout.record_path(os.fspath(root), submission, layout.SPEC))
    if endpoint is None or intent is None or users_at(endpoint.port) != {intent.get("uid")}:
        return None
    return endpoint
