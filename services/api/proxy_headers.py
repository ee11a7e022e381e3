"""Which headers pass the proxy of workstations, both ways. Pure.

The process behind is the tenant's: it never sees the token or cookie that let the caller in. What it answers is shown
under this server's address, beside the API and every other workstation: so it sets cookies below its own prefix only,
and nothing that acts on the whole address.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

COOKIE: Final = "tidegate-workstation"
"""What a browser shows to be let in to one workstation."""

Headers = Iterable[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1: these are about one connection.
_ONE_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
_NOT_ASKED: Final = frozenset(b"authorization cookie expect forwarded".split())
_HANDSHAKE: Final = frozenset({b"host", b"origin", b"content-length"})
_WHOLE_ADDRESS: Final = frozenset(
    b"alt-svc clear-site-data public-key-pins service-worker-allowed set-cookie strict-transport-security".split()
)


@dataclass(frozen=True, slots=True)
class Place:
    """Under what a workstation is shown. `keeps_prefix`: its command expects the prefix in the paths of requests and
    writes it itself into those of its answers."""

    prefix: str
    keeps_prefix: bool
    port: int
    host: str
    """As the caller names this server."""

    def target(self, raw_path: bytes, query: bytes) -> bytes:
        """The request line's target for the process behind."""
        path = raw_path if self.keeps_prefix else raw_path[len(self.prefix) :] or b"/"
        return path + b"?" + query if query else path

    def location(self, given: str) -> str | None:
        """Where a redirect leads for the caller; one to another server stays as it is. None for one that is no URL."""
        try:
            parts = urlsplit(given)
        except ValueError:
            return None
        ours = not parts.netloc or parts.netloc.lower() in (self.host.lower(), f"127.0.0.1:{self.port}")
        if not ours or not parts.path.startswith("/") or parts.scheme not in ("", "http", "https"):
            return given
        return parts._replace(scheme="", netloc="", path=self._shown(parts.path)).geturl()

    def _shown(self, path: str) -> str:
        """A path of the process behind, as it is under this server's address; never one outside of the prefix."""
        return path if path == self.prefix or path.startswith(f"{self.prefix}/") else self.prefix + path

    def cookie(self, given: str) -> str | None:
        """A cookie of the process behind, kept below its prefix; None for one that bears our name."""
        pair, *attributes = (part.strip() for part in given.split(";"))
        if pair.partition("=")[0].strip() == COOKIE:
            return None
        named = [(text.partition("=")[0].strip().lower(), text) for text in attributes]
        path = next((text.partition("=")[2].strip() for name, text in reversed(named) if name == "path"), "/")
        kept = [text for name, text in named if name not in ("path", "domain")]
        below = self._shown(path) if path.startswith("/") else self.prefix
        return "; ".join([pair, *kept, f"Path={below}"])


def asked(headers: Headers, place: Place, *, client: str, scheme: str, secret: str) -> list[tuple[bytes, bytes]]:
    """The headers for the process behind: without the caller's credentials, with the secret that guards its port."""
    dropped = _dropped(headers) | _NOT_ASKED
    kept = [(name, value) for name, value in _lowered(headers) if name not in dropped and not _forwarding(name)]
    cookies = _others_cookies(headers)
    return [
        *kept,
        *([(b"cookie", cookies)] if cookies else []),
        (b"authorization", f"token {secret}".encode()),
        (b"x-forwarded-for", client.encode()),
        (b"x-forwarded-host", place.host.encode("latin-1")),
        (b"x-forwarded-proto", scheme.encode()),
        (b"x-forwarded-prefix", place.prefix.encode()),
    ]


def asked_for_a_socket(headers: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    """The same without what a WebSocket's own handshake says."""
    return [
        (name.decode("latin-1"), value.decode("latin-1"))
        for name, value in headers
        if name not in _HANDSHAKE and not name.startswith(b"sec-websocket-")
    ]


def answered(headers: Headers, place: Place) -> Iterator[tuple[bytes, bytes]]:
    """The headers of an answer, for the caller."""
    dropped = _dropped(headers) | _WHOLE_ADDRESS
    for name, value in _lowered(headers):
        if name in (b"location", b"content-location"):
            location = place.location(value.decode("latin-1"))
            if location is not None:
                yield name, location.encode("latin-1")
        elif name == b"set-cookie":
            cookie = place.cookie(value.decode("latin-1"))
            if cookie is not None:
                yield name, cookie.encode("latin-1")
        elif name not in dropped and name != b"date":  # uvicorn sets one
            yield name, value


def cookies_named(name: str, header: str) -> list[str]:
    """The values of a name in a Cookie header; a browser may send several, of several paths."""
    pairs = (part.strip().partition("=") for part in header.split(";"))
    return [value for key, _, value in pairs if key == name]


def _others_cookies(headers: Headers) -> bytes:
    ours = COOKIE.encode()
    parts = [part.strip() for name, value in _lowered(headers) if name == b"cookie" for part in value.split(b";")]
    return b"; ".join(part for part in parts if part and part.partition(b"=")[0].strip() != ours)


def _dropped(headers: Headers) -> frozenset[bytes]:
    """What is about one connection, by name or because `Connection` names it; and the length of a body that comes in
    chunks, which counts for nothing (RFC 9112, section 6.3) but might for whoever hears it next."""
    given = list(_lowered(headers))
    named = {word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")}
    chunked = any(name == b"transfer-encoding" for name, _ in given)
    return _ONE_HOP | named | ({b"content-length"} if chunked else frozenset())


def _forwarding(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name == b"x-real-ip"


def _lowered(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers)
