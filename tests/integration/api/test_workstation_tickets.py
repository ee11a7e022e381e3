"""Tickets and cookies of workstations in the hands of others: other sites' pages, hostile pages, and the process."""

import json

import httpx
import pytest

from services.api import visiting
from services.api.visits import FIND
from tests.integration.api.behind import Process, socket_to, to
from tests.integration.api.conftest import RunningApi

COOKIE, TICKET = "tidegate-workstation", "tidegate-ticket"


async def _ticket(client: httpx.AsyncClient, workstation: str) -> str:
    return str((await client.post(f"/v1/workstations/{workstation}/ticket")).json()["url"])


def _stands_in_no_frame(response: httpx.Response) -> bool:
    policy = response.headers.get("content-security-policy", "")
    return response.headers.get("x-frame-options") == "DENY" and "frame-ancestors 'none'" in policy


async def test_who_follows_another_sites_link_is_asked_before_the_ticket_is_redeemed(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    url, browser = await _ticket(rin, desk), api.client(None)
    for site in ("cross-site", "same-site", "what comes after"):
        asked = await browser.get(url, headers={"Sec-Fetch-Site": site})
        assert (asked.status_code, "set-cookie" in asked.headers) == (200, False), site
        assert f"Open the workstation {desk}?" in asked.text
        assert (asked.headers["cache-control"], asked.headers["referrer-policy"]) == ("no-store", "no-referrer")
        assert _stands_in_no_frame(asked)
        assert (await browser.get(to(desk))).status_code == 401
    form = f'<form action="{to(desk)}"><input type="hidden" name="{TICKET}" value="{url.rpartition("=")[2]}">'
    assert form in asked.text, "it asks for the same once more"
    entered = await browser.get(url, headers={"Sec-Fetch-Site": "same-origin"})
    assert (entered.status_code, "set-cookie" in entered.headers) == (200, True)
    assert (await browser.get(to(desk))).status_code == 200


async def test_who_writes_or_pastes_the_address_is_not_asked(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    for headers in ({"Sec-Fetch-Site": "none"}, {}):
        assert "set-cookie" in (await api.client(None).get(await _ticket(rin, desk), headers=headers)).headers


async def test_a_question_is_no_way_to_write_into_our_page(api: RunningApi, desk: str) -> None:
    address = f"{to(desk)}?{TICKET}=%22%3E%3Cscript%3E"
    asked = await api.client(None).get(address, headers={"Sec-Fetch-Site": "cross-site"})
    assert (asked.status_code, "<script" in asked.text) == (200, False)
    long = await api.client(None).get(f"{to(desk)}?{TICKET}={'x' * 200}", headers={"Sec-Fetch-Site": "cross-site"})
    assert long.status_code == 401


async def test_our_own_pages_stand_in_no_frame_and_the_workstations_in_those_of_this_address(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, process: Process
) -> None:
    used = await _ticket(rin, desk)
    ours = [await api.client(None).get(used) for _ in range(2)]
    ours += [await api.client(None).get(to(desk)), await rin.get("/nothing")]
    process.answer_headers = [(b"content-security-policy", b"frame-ancestors *; script-src 'self'")]
    shown = await rin.get(to(desk), headers={"Accept": "text/html"})
    assert shown.headers.get_list("content-security-policy") == [
        "frame-ancestors *; script-src 'self'",
        "frame-ancestors 'self'",
    ]
    await rin.post(f"/v1/workstations/{desk}/stop")
    ours += [await rin.get(to(desk), headers={"Accept": "text/html"}), await rin.get(to(desk))]
    assert [response.status_code for response in ours] == [200, 401, 401, 404, 409, 409]
    assert all(map(_stands_in_no_frame, ours))
    assert ours[0].headers["referrer-policy"] == ours[4].headers["referrer-policy"] == "no-referrer"


async def test_a_ticket_never_reaches_the_process(api: RunningApi, rin: httpx.AsyncClient, desk: str) -> None:
    query = (await _ticket(rin, desk)).partition("?")[2]
    odd = query.replace("tidegate-ticket", "%74idegate%2Dticket")
    for given in (query, odd, f"{query}&{odd}"):
        headers = {"Referer": f"{api.url}{to(desk)}?{given}"}
        seen = (await rin.get(f"{to(desk, '/x')}?a=%26&{given}&b", headers=headers)).json()
        assert seen["target"] == "/x?a=%26&b"
        assert query.rpartition("=")[2] not in json.dumps(seen)
        async with socket_to(api, desk, f"/socket?{given}", Referer=headers["Referer"]) as socket:
            opened = str(await socket.recv())
        assert json.loads(opened)["target"] == "/socket"
        assert query.rpartition("=")[2] not in opened


async def test_a_good_cookie_is_found_behind_all_that_a_hostile_page_can_set(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = api.client(None)
    await browser.get(await _ticket(rin, desk))
    good, asked = browser.cookies[COOKIE], 0
    fetchrow = api.service.db.fetchrow

    async def counted(query: str, *given: object) -> object:
        nonlocal asked
        asked += query == FIND
        return await fetchrow(query, *given)

    monkeypatch.setattr(api.service.db, "fetchrow", counted)
    shadows = [f"{COOKIE}={number}" for number in range(200)] + [f"{COOKIE}={'x' * 200}"] * 200
    headers = {"Cookie": "; ".join([*shadows, f"{COOKIE}={good}"])}
    seen = await api.client(None).get(to(desk), headers=headers)
    assert (seen.status_code, good in seen.text) == (200, False)
    assert asked == 1, "all of them are one question"
    monkeypatch.setattr(visiting, "_COOKIES_TRIED", 200)
    assert (await api.client(None).get(to(desk), headers=headers)).status_code == 401, "there is an end to it"
