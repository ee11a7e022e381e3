"""Under what a workstation is shown, and what becomes there of the paths that it writes. Pure.

Addresses are read as browsers read them (URL Standard, section 4.4): a backslash is a slash, `%2e` is a dot, tabs and
ends of lines count for nothing, and no `..` leads above the root.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote_plus, urlsplit

COOKIE: Final = "tidegate-workstation"
"""What a browser shows to be let in to one workstation."""
TICKET: Final = "tidegate-ticket"
"""The query parameter that a cookie is given for."""

_REFRESH: Final = re.compile(r"\s*([0-9.]+)(?:(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(['\"]?)(.*))?", re.IGNORECASE)
_DEFAULT_PORTS: Final = (None, 80, 443)


@dataclass(frozen=True, slots=True)
class Place:
    """Under what a workstation is shown to one request. `keeps_prefix`: its command expects the prefix in the paths of
    requests and writes it itself into those of its answers."""

    prefix: str
    keeps_prefix: bool
    port: int
    host: str
    """As the caller names this server."""
    path: str
    """The request's, behind the prefix, as it came."""

    def target(self, query: bytes) -> bytes:
        """The request line's target for the process behind. A ticket is not for it: it would be let in with one."""
        path = (self.prefix + self.path if self.keeps_prefix else self.path).encode("ascii")
        kept = b"&".join(part for part in query.split(b"&") if not _is_ticket(part))
        return path + b"?" + kept if kept else path

    def location(self, given: str) -> str | None:
        """Where a redirect leads for the caller: within this server to below the prefix, and elsewhere as it says. None
        for one that is no URL."""
        text = re.sub(r"[\t\r\n]", "", given).strip("".join(map(chr, range(0x21))))
        head = re.split("[?#]", text, maxsplit=1)[0]
        tail = text[len(head) :]
        try:
            parts = urlsplit(head.replace("\\", "/"))
            elsewhere = parts.scheme not in ("", "http", "https") or (parts.netloc != "" and not self._is_ours(parts))
        except ValueError:
            return None
        if elsewhere:
            return text
        if parts.netloc or parts.path.startswith("/"):
            return self._shown(parts.path or "/") + tail
        if parts.path:
            return self.prefix + _normal(f"{self.path.rpartition('/')[0]}/{parts.path}") + tail
        return tail

    def refresh(self, given: str) -> str | None:
        """A `Refresh` header (HTML, section 4.2.4.3) that leads where a redirect would; None where it leads nowhere."""
        match = _REFRESH.fullmatch(given)
        if match is None:
            return None
        seconds, quote, rest = match.groups()
        if not rest:
            return str(seconds)
        location = self.location(rest.partition(quote)[0] if quote else rest)
        return None if location is None else f"{seconds};url={location}"

    def cookie(self, given: str) -> str | None:
        """A cookie of the process behind, kept below its prefix; None for one that bears our name. One without a name
        is sent back by browsers as if its value were all there is."""
        pair, *attributes = (part.strip() for part in given.split(";"))
        if pair.lstrip("= \t").partition("=")[0].strip() == COOKIE:
            return None
        named = [(text.partition("=")[0].strip().lower(), text) for text in attributes]
        path = next((text.partition("=")[2].strip() for name, text in reversed(named) if name == "path"), "/")
        kept = [text for name, text in named if name not in ("path", "domain")]
        below = self._shown(path) if path.startswith("/") else self.prefix
        return "; ".join([pair, *kept, f"Path={below}"])

    def _shown(self, path: str) -> str:
        """A path of the process behind, as it is under this server's address; never one outside of the prefix."""
        normal = _normal(path)
        return normal if normal == self.prefix or normal.startswith(f"{self.prefix}/") else self.prefix + normal

    def _is_ours(self, parts: SplitResult) -> bool:
        """Whether it names this server, or the port behind; who it says to be there counts for nothing."""
        return _named(parts) in (_named(urlsplit(f"//{self.host}")), ("127.0.0.1", self.port))


def _named(parts: SplitResult) -> tuple[str | None, int | None]:
    return parts.hostname, None if parts.port in _DEFAULT_PORTS else parts.port


def _normal(path: str) -> str:
    """A path from the root, without segments that lead elsewhere."""
    kept: list[str] = []
    segments = path.replace("\\", "/").split("/")[1:]
    for place, segment in enumerate(segments, start=1):
        dots = segment.lower().replace("%2e", ".")
        if dots == "..":
            del kept[-1:]
        if dots not in (".", ".."):
            kept.append(segment)
        elif place == len(segments):
            kept.append("")
    return "/" + "/".join(kept)


def _is_ticket(part: bytes) -> bool:
    return unquote_plus(part.partition(b"=")[0].decode("latin-1")) == TICKET
