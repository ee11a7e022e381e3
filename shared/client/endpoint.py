"""Where the server is, and with which token: from the environment, else from an embedded stack's `endpoint.json`."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.client.errors import NoServer


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address and the tokens known for it; `origin` says where that was found, for error messages."""

    url: str
    token: str
    admin_token: str | None
    origin: str


def home_of(environ: Mapping[str, str] = os.environ) -> Path:
    """The embedded stack's folder: TIDEGATE_HOME, else ~/.tidegate."""
    given = environ.get("TIDEGATE_HOME")
    return Path(given) if given else Path.home() / ".tidegate"


def find_endpoint(environ: Mapping[str, str] = os.environ) -> Endpoint:
    """TIDEGATE_URL with TIDEGATE_TOKEN, else `endpoint.json` in the stack's folder; NoServer where neither is."""
    url = environ.get("TIDEGATE_URL")
    if url:
        token = environ.get("TIDEGATE_TOKEN")
        if not token:
            raise NoServer("TIDEGATE_URL is set, but TIDEGATE_TOKEN is not: set it to a token of that server")
        return Endpoint(url.rstrip("/"), token, environ.get("TIDEGATE_ADMIN_TOKEN", token), "TIDEGATE_URL")
    path = home_of(environ) / "endpoint.json"
    try:
        found = json.loads(path.read_bytes())
        token = environ.get("TIDEGATE_TOKEN") or str(found["token"])
        return Endpoint(str(found["url"]).rstrip("/"), token, found.get("admin_token"), str(path))
    except FileNotFoundError:
        raise NoServer(
            f"no server is known: TIDEGATE_URL is not set and {path} does not exist; "
            "start a stack here with `tidegate up --detach`, or set TIDEGATE_URL and TIDEGATE_TOKEN"
        ) from None
    except PermissionError:
        raise NoServer(f"{path} may not be read by you: it belongs to whoever started that stack") from None
    except (ValueError, KeyError, TypeError):
        raise NoServer(
            f"{path} cannot be understood: start the stack again: `tidegate down`, then `tidegate up --detach`"
        ) from None
