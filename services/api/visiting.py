"""The door of workstations for browsers, which send a cookie in place of a token: only there, and for that one only."""

import re
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import Response

from services.api.pages import entered_page, question_page
from services.api.problems import Problem
from services.api.proxy_headers import cookies_named
from services.api.proxy_place import COOKIE, TICKET
from services.api.visits import COOKIE_SECONDS, Visitor, Visits

_PROXY: Final = re.compile(r"/v1/workstations/([a-z0-9]{1,64})/proxy(?:/.*)?", re.DOTALL)
# A page of this address can set cookies of our name for longer paths, which come first: so all are looked at that a
# browser keeps for an address (Chromium and Firefox: 180).
_COOKIES_TRIED: Final = 256
_SECRET_LENGTH: Final = 128


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
        """What answers a ticket: the cookie, on a page that goes on to the workstation; or a question, where another
        site's page leads here: who sends others a ticket of their own brings them among pages of their own. None where
        none was given."""
        tickets = connection.query_params.getlist(TICKET)
        if not tickets or connection.scope["type"] != "http":
            return None
        to = f"{prefix_of(workstation)}/"
        cookie = None
        if connection.scope["method"] == "GET" and len(tickets[0]) <= _SECRET_LENGTH:
            if connection.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                return question_page(workstation, to, tickets[0])
            cookie = await self._visits.redeem(tickets[0], workstation, now)
        if cookie is None:
            raise _refused(f"this ticket was used, has expired or is none: {_another(workstation)}")
        response = entered_page(to)
        response.set_cookie(
            COOKIE,
            cookie,
            max_age=COOKIE_SECONDS,
            path=prefix_of(workstation),
            secure=connection.scope["scheme"] == "https",
            httponly=True,
            samesite="strict",
        )
        return response

    async def visitor(self, connection: HTTPConnection, workstation: str, now: datetime) -> Visitor | None:
        """Who the cookie is of; None where there is none. Raises where it is not good, or another page's script sends
        it."""
        given = cookies_named(COOKIE, "; ".join(connection.headers.getlist("cookie")))
        if not given:
            return None
        tried = [cookie for cookie in dict.fromkeys(given) if len(cookie) <= _SECRET_LENGTH][:_COOKIES_TRIED]
        visitor = await self._visits.visitor(tried, workstation, now)
        if visitor is None:
            raise _refused(f"your visit has expired or its token was revoked: {_another(workstation)}")
        if _from_elsewhere(connection):
            raise Problem(
                "forbidden", "another site's page asked for this with your cookie: open the workstation itself"
            )
        return visitor


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
