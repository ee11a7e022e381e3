"""The pages that this server shows itself: they tell nobody the address that they are at, and stand in no frame."""

from collections.abc import Mapping
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

from services.api.proxy_place import TICKET

UNFRAMED: Final = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
}
"""For all that this server says itself. What is in a frame can be pressed by who believes to press something else."""
_PRIVATE: Final = {**UNFRAMED, "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
_HEAD: Final = '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tidegate</title>'


def entered_page(path: str) -> HTMLResponse:
    """Goes on to the workstation. A redirect after a click in another site's page would come without a cookie that is
    SameSite=Strict (RFC 6265bis, section 5.2): from this page on, the browser is on ours."""
    to = escape(path)
    return _page(f'<meta http-equiv="refresh" content="0;url={to}"><p><a href="{to}">to the workstation</a></p>')


def question_page(workstation: str, path: str, ticket: str) -> HTMLResponse:
    """Asks whoever comes from another site's page whether it was their wish."""
    return _page(
        f"<p>Open the workstation {escape(workstation)}? Another site's page leads here. Go on only if you know whose "
        "workstation it is: its pages can reach those that you have open already.</p>"
        f'<form action="{escape(path)}"><input type="hidden" name="{TICKET}" value="{escape(ticket)}">'
        "<button>Open this workstation</button></form>"
    )


def waiting_page(sentence: str, status: int, headers: Mapping[str, str]) -> HTMLResponse:
    """In place of a workstation that cannot be reached now; it looks again by itself."""
    return _page(
        f'<meta http-equiv="refresh" content="3"><p>{escape(sentence)}</p>'
        "<p>This page looks again every 3 seconds.</p>",
        status,
        headers,
    )


def _page(rest: str, status: int = 200, headers: Mapping[str, str] | None = None) -> HTMLResponse:
    return HTMLResponse(_HEAD + rest, status, {**(headers or {}), **_PRIVATE})
