"""nats-server's configuration as text: users with their permissions, JetStream that syncs before it acknowledges."""

import json
import re
from collections.abc import Mapping

from infra.nats.permissions import ADMIN, ALL, Permissions

_CONFIGURATION = """\
listen: {listen}
server_name: {server_name}
jetstream {{
  store_dir: {store}
  # Without this an acknowledged message may vanish in a power cut: the default is a sync every two minutes.
  sync_interval: always
}}
{authorization}
"""
_ESCAPE = re.compile(r"\\(?:u00(..)|(.))")
_BY_NUMBER = {"b": r"\x08", "f": r"\x0c"}


def render(
    *, passwords: Mapping[str, str], store_dir: str, host: str = "127.0.0.1", port: int = 4222, name: str = "tidegate"
) -> str:
    """A whole configuration. It holds the passwords (or their bcrypt hashes): keep it from other users."""
    return _CONFIGURATION.format(
        listen=_quoted(f"{host}:{port}"),
        server_name=_quoted(name),
        store=_quoted(store_dir),
        authorization=authorization(passwords),
    )


def authorization(passwords: Mapping[str, str]) -> str:
    """The block of users: `admin` and every service, each with its password; nobody else gets in."""
    missing = sorted({ADMIN, *ALL} - set(passwords))
    unknown = sorted(set(passwords) - {ADMIN, *ALL})
    if missing or unknown:
        raise ValueError(f"passwords have to be those of {ADMIN} and {', '.join(ALL)}: {missing=}, {unknown=}")
    users = [_user(ADMIN, passwords[ADMIN], None)]
    users += [_user(service, passwords[service], permissions) for service, permissions in ALL.items()]
    return "authorization {\n  users: [\n" + "".join(f"    {user}\n" for user in users) + "  ]\n}\n"


def _user(name: str, password: str, permissions: Permissions | None) -> str:
    entry: dict[str, object] = {"user": name, "password": password}
    if permissions is not None:
        entry["permissions"] = {
            "publish": {"allow": permissions.publish},
            "subscribe": {"allow": permissions.subscribe},
            # An answer to a query goes to the asker's inbox, which nobody may publish to otherwise.
            "allow_responses": {"max": 1, "expires": "1m"},
        }
    return _quoted(entry)


def _quoted(value: object) -> str:
    """JSON as nats-server reads it: characters as they are, and `\\x0b` where JSON says `\\u000b`."""
    text = json.dumps(value, ensure_ascii=False)
    return _ESCAPE.sub(lambda found: rf"\x{found[1]}" if found[1] else _BY_NUMBER.get(found[2], found[0]), text)
