"""The door of workstations for browsers, which send a cookie in place of a token: only there, and for that one only."""

import re
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import HTMLResponse, Response

from services.api.problems import Problem
from services.api.proxy_headers import COOKIE, cookies_named
from services.api.visits import COOKIE_SECONDS, Visitor, Visits

TICKET: Final = "tidegate-ticket"
_PROXY: Final = re.compile(r"/v1/workstations/([a-z0-9]{1,64})/proxy(?:/.*)?", re.DOTALL)
_COOKIES_TRIED: Final = 4
_SECRET_LENGTH: Final = 128

# A redirect after a click in another site's page would come without a cookie that is SameSite=Strict (RFC 6265bis,
# section 5.2): from this page on, the browser is on ours.
_ENTERED: Final = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={path}"><title>Tidegate</title>'
    '<p><a href="{path}">to the workstation</a></p>'
)
_PRIVATE: Final = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}


def workstation_of(path: str) -> str | None:
    """The workstation that a path reaches through the proxy."""
    match = _PROXY.fullmatch(path)
    return None if match is None else match[1]


def prefix_of(workstation: str) -> str:
    """The path under which a workstation is shown."""
    return f"/v1/workstations/{workstation}/proxy"


class Visiting:
    """Lets holders of tickets and cookies in."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits

    async def entered(self, connection: HTTPConnection, workstation: str, now: datetime) -> Response | None:
        """What answers a ticket: the cookie, on a page that goes on to the workstation. None where none was given."""
        tickets = connection.query_params.getlist(TICKET)
        if not tickets or connection.scope["type"] != "http":
            return None
        cookie = None
        if connection.scope["method"] == "GET" and len(tickets[0]) <= _SECRET_LENGTH:
            cookie = await self._visits.redeem(tickets[0], workstation, now)
        if cookie is None:
            raise _refused(f"this ticket was used, has expired or is none: {_another(workstation)}")
        prefix = prefix_of(workstation)
        response = HTMLResponse(_ENTERED.format(path=f"{prefix}/"), headers=_PRIVATE)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=COOKIE_SECONDS,
            path=prefix,
            secure=connection.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def visitor(self, connection: HTTPConnection, workstation: str, now: datetime) -> Visitor | None:
        """Who the cookie is of; None where there is none. Raises where it is not good, or another page's script sends
        it."""
        given = cookies_named(COOKIE, connection.headers.get("cookie", ""))[:_COOKIES_TRIED]
        if not given:
            return None
        for cookie in given:
            visitor = None if len(cookie) > _SECRET_LENGTH else await self._visits.visitor(cookie, workstation, now)
            if visitor is not None:
                if _from_elsewhere(connection):
                    raise Problem(
                        "forbidden", "another site's page asked for this with your cookie: open the workstation itself"
                    )
                return visitor
        raise _refused(f"your visit has expired or its token was revoked: {_another(workstation)}")


def _from_elsewhere(connection: HTTPConnection) -> bool:
    """Whether a page of another origin makes the browser ask. What changes something, and a WebSocket, has to name
    ours; other requests must not be known to come from elsewhere, but for a person who follows a link."""
    headers, scope = connection.headers, connection.scope
    safe = scope["type"] == "http" and scope["method"] in ("GET", "HEAD", "OPTIONS")
    origin = headers.get("origin")
    if origin is not None or not safe:
        return origin is None or urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    if headers.get("sec-fetch-site") in ("cross-site", "same-site"):
        return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")
    return False


def _refused(detail: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": 'Bearer realm="tidegate"'})


def _another(workstation: str) -> str:
    return f"`tidegate workstation url {workstation}` gives another"
