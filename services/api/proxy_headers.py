"""Which headers pass the proxy of workstations, both ways. Pure.

The process behind is the tenant's: it never sees the token, ticket or cookie that let the caller in. What it answers is
shown under this server's address, beside the API and every other workstation: so it sets cookies below its own prefix
only, and nothing that acts on the whole address.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from services.api.proxy_place import COOKIE, TICKET, Place

Headers = Iterable[tuple[bytes, bytes]]

# RFC 9110, section 7.6.1: these are about one connection.
_ONE_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    b"upgrade".split()
)
# What `Connection` may not name, for who is behind needs it: where the body ends.
_FRAMING: Final = frozenset({b"content-length"})
_NOT_ASKED: Final = frozenset(b"authorization cookie expect forwarded host".split())
_HANDSHAKE: Final = frozenset({b"host", b"origin", b"content-length"})

# It names what is refused, not what may pass: applications have headers of their own, on which no browser acts.
WITHHELD: Final[Mapping[bytes, str]] = {
    b"accept-ch": "the browser would tell every page of this address more of itself",
    b"accept-ch-lifetime": "the same, as it was written once",
    b"alt-svc": "another server would answer for this address",
    b"clear-site-data": "it ends the visits to all workstations, and empties what their pages keep",
    b"critical-ch": "as Accept-CH, and at once",
    b"expect-ct": "certificates of this address would be reported to others",
    b"nel": "what is asked for at this address would be reported to others",
    b"origin-agent-cluster": "the first page would decide it for all of this address",
    b"public-key-pins": "it can make this address unreachable for months",
    b"public-key-pins-report-only": "certificates of this address would be reported to others",
    b"report-to": "reports about the whole address would go to others",
    b"reporting-endpoints": "reports have addresses of pages in them, and would go to others",
    b"sec-session-registration": "as Secure-Session-Registration, by its first name",
    b"secure-session-registration": "requests to the whole address would wait for a path of one workstation",
    b"service-worker-allowed": "a script could stand between the browser and the whole address",
    b"set-login": "it says for the whole address whether somebody is signed in",
    b"strict-transport-security": "it can make this address unreachable where it has no certificate",
    b"use-as-dictionary": "it would be used for other paths of this address",
    b"www-authenticate": "a password would be asked for in the name of this address, and never get there",
    b"x-accel-redirect": "what stands in front of this server would answer with something of its own",
    b"x-lighttpd-send-file": "the same, in another server's words",
    b"x-reproxy-url": "the same, from anywhere",
    b"x-sendfile": "the same, with any of its files",
}
"""Headers of an answer that do not pass, and why."""

# Pages of this address may show a workstation's, others may not; what it asks for itself holds beside it.
_FRAMED_BY: Final = (b"content-security-policy", b"frame-ancestors 'self'")
_UNWRITABLE: Final = re.compile(
    rb"[\x00-\x08\x0a-\x1f\x7f]"
)  # RFC 9110, section 5.5: of these readers make different things


def asked(headers: Headers, place: Place, *, client: str, scheme: str, secret: str) -> list[tuple[bytes, bytes]]:
    """The headers for the process behind: without the caller's credentials, with the secret that guards its port."""
    dropped = _dropped(headers) | _NOT_ASKED
    kept = [
        (name, value)
        for name, value in _lowered(headers)
        if name not in dropped and not _forwarding(name) and not _tells_a_ticket(name, value)
    ]
    cookies = _others_cookies(headers)
    return [
        (b"host", (place.host or f"127.0.0.1:{place.port}").encode("latin-1")),
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
    dropped = _dropped(headers) | WITHHELD.keys() | {b"date"}  # uvicorn sets one
    shown = {
        b"location": place.location,
        b"content-location": place.location,
        b"refresh": place.refresh,
        b"set-cookie": place.cookie,
    }
    for name, value in _lowered(headers):
        if _UNWRITABLE.search(value):
            continue
        if name in shown:
            became = shown[name](value.decode("latin-1"))
            if became is not None:
                yield name, became.encode("latin-1")
        elif name not in dropped:
            yield name, value
    yield _FRAMED_BY


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
    return _ONE_HOP | (named - _FRAMING) | (_FRAMING if chunked else frozenset())


def _forwarding(name: bytes) -> bool:
    return name.startswith(b"x-forwarded-") or name == b"x-real-ip"


def _tells_a_ticket(name: bytes, value: bytes) -> bool:
    """Whether it is the address of the page before, as somebody came to it."""
    return name == b"referer" and TICKET in unquote(value.decode("latin-1"))


def _lowered(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    return ((name.lower(), value) for name, value in headers)
