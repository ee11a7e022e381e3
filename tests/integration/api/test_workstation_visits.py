"""Who comes to a workstation: by token, or by a cookie that a ticket was exchanged for, and nobody else."""

import asyncio
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.integration.api.behind import Process, Watcher, a_workstation, a_workstation_up, to
from tests.integration.api.conftest import UMBRA_USER, RunningApi, running, settings_for
from tests.patience import PATIENCE_SECONDS

COOKIE = "tidegate-workstation"


async def _ticket(client: httpx.AsyncClient, workstation: str) -> str:
    response = await client.post(f"/v1/workstations/{workstation}/ticket")
    assert response.status_code == 201, response.text
    return str(response.json()["url"])


async def _enters(api: RunningApi, client: httpx.AsyncClient, workstation: str) -> httpx.AsyncClient:
    """A browser with the cookie that a ticket of the client gives."""
    browser = api.client(None)
    assert (await browser.get(await _ticket(client, workstation))).status_code == 200
    return browser


async def test_a_ticket_sets_a_cookie_that_is_good_for_this_workstation(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    browser = api.client(None)
    response = await browser.get(await _ticket(rin, desk))
    assert response.status_code == 200
    assert f'url={to(desk)}"' in response.text
    set_cookie = response.headers["set-cookie"].lower()
    for part in ("httponly", "samesite=strict", f"path={to(desk, '')}", "max-age=43200"):
        assert part in set_cookie
    assert (response.headers["cache-control"], response.headers["referrer-policy"]) == ("no-store", "no-referrer")
    seen = (await browser.get(to(desk, "/x"))).json()
    assert seen["target"] == "/x"
    assert COOKIE not in str(seen), "the process never sees the cookie that let its reader in"


async def test_the_cookie_opens_no_other_route(api: RunningApi, rin: httpx.AsyncClient, desk: str) -> None:
    browser = await _enters(api, rin, desk)
    cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    other = await a_workstation(rin)
    for path in ("/v1/jobs", f"/v1/workstations/{desk}", f"/v1/workstations/{desk}/ticket", to(other), "/v1/whoami"):
        for headers in (cookie, cookie | {"Host": f"h{to(desk)}?"}):
            response = await api.client(None).request("POST" if "ticket" in path else "GET", path, headers=headers)
            assert response.status_code == 401, (path, headers)


async def test_a_ticket_is_good_once_also_for_two_at_once(api: RunningApi, rin: httpx.AsyncClient, desk: str) -> None:
    url = await _ticket(rin, desk)
    answers = await asyncio.gather(*(api.client(None).get(url) for _ in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 401, 401, 401]
    again = await api.client(None).get(url)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers
    assert f"tidegate workstation url {desk}" in again.json()["detail"]


async def test_expired_tickets_and_cookies_are_refused_and_swept(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    browser = await _enters(api, rin, desk)
    url = await _ticket(rin, desk)
    await api.service.db.execute("UPDATE visits SET expires_at = now() - interval '1 second'")
    assert (await api.client(None).get(url)).status_code == 401
    assert (await browser.get(to(desk))).status_code == 401
    await _ticket(rin, desk)
    await api.api.visits.sweep(api.api.clock.now())
    assert await api.service.db.fetchval("SELECT count(*) FROM visits") == 1


async def test_a_ticket_and_a_cookie_are_of_no_other_workstation(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, process: Process, watcher: Watcher
) -> None:
    other = await a_workstation_up(api, rin, process, watcher)
    ticket = (await _ticket(rin, desk)).partition("?")[2]
    assert (await api.client(None).get(f"{to(other)}?{ticket}")).status_code == 401
    browser = await _enters(api, rin, desk)
    cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    assert (await api.client(None).get(to(other), headers=cookie)).status_code == 401
    assert (await api.client(None).get(to(desk), headers=cookie)).status_code == 200


async def test_other_tenants_get_neither_in_nor_a_ticket(
    api: RunningApi, kay: httpx.AsyncClient, desk: str, watcher: Watcher
) -> None:
    assert (await kay.get(to(desk))).status_code == 404
    assert (await kay.post(f"/v1/workstations/{desk}/ticket")).status_code == 404
    assert watcher.asked == []


async def test_revoking_a_token_revokes_what_came_from_it(api: RunningApi, ada: httpx.AsyncClient, desk: str) -> None:
    made = (await ada.post("/v1/tokens", json={"tenant": "acme", "user": "lee"})).json()
    lee = api.client(made["token"])
    browser, url = await _enters(api, lee, desk), await _ticket(lee, desk)
    assert (await browser.get(to(desk))).status_code == 200
    await ada.delete(f"/v1/tokens/{made['id']}")
    assert (await browser.get(to(desk))).status_code == 401
    assert (await api.client(None).get(url)).status_code == 401


async def test_only_hashes_of_tickets_and_cookies_are_kept(api: RunningApi, rin: httpx.AsyncClient, desk: str) -> None:
    browser, url = await _enters(api, rin, desk), await _ticket(rin, desk)
    rows = str([dict(row) for row in await api.service.db.fetch("SELECT * FROM visits")])
    assert browser.cookies[COOKIE] not in rows
    assert url.rpartition("=")[2] not in rows


async def test_another_replica_knows_tickets_and_cookies(
    api: RunningApi, rin: httpx.AsyncClient, desk: str, tmp_path: Path
) -> None:
    settings = settings_for(api.database, api.nats, tmp_path, replica="another")
    async with running(settings, api.database, api.nats) as other:
        browser = other.client(None)
        assert (await browser.get(await _ticket(rin, desk))).status_code == 200
        assert (await browser.get(to(desk))).status_code == 200
        cookie = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
        assert (await api.client(None).get(to(desk), headers=cookie)).status_code == 200


async def test_an_authorization_of_the_workstations_own_pages_does_not_shut_their_visitor_out(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    browser = await _enters(api, rin, desk)
    for own in ("token abc", "Basic YTpi"):
        seen = await browser.get(to(desk), headers={"Authorization": own})
        assert (seen.status_code, own in str(dict(seen.json()["headers"]).values())) == (200, False), own
        assert (await api.client(None).get(to(desk), headers={"Authorization": own})).status_code == 401, own
    assert (await browser.get(to(desk), headers={"Authorization": "Bearer nobody's"})).status_code == 401


ASKED: list[tuple[str, dict[str, str], int]] = [
    ("GET", {}, 200),
    ("GET", {"Origin": "http://evil.example"}, 403),
    ("GET", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403),
    ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 200),
    ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403),
    ("POST", {}, 403),
    ("POST", {"Origin": "null"}, 403),
    ("POST", {"Origin": "http://evil.example"}, 403),
    ("DELETE", {"Origin": "http://127.0.0.1:1"}, 403),
    ("POST", {"Origin": "OURS"}, 200),
]


async def test_with_a_cookie_only_the_workstations_own_pages_may_ask(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    browser = await _enters(api, rin, desk)
    for method, headers, status in ASKED:
        given = {name: value.replace("OURS", api.url) for name, value in headers.items()}
        assert (await browser.request(method, to(desk), headers=given)).status_code == status, (method, headers)


OPENINGS: list[tuple[dict[str, str], int]] = [
    ({}, 401),
    ({"Authorization": "Bearer nobody's token of some length"}, 401),
    ({"Authorization": f"Bearer {UMBRA_USER}"}, 404),
    ({"Cookie": f"{COOKIE}=nobody's"}, 401),
    ({"Cookie": "OURS"}, 403),
    ({"Cookie": "OURS", "Origin": "http://evil.example"}, 403),
    ({"Cookie": "OURS", "Origin": "http://OURS"}, 101),
]


async def test_a_websocket_is_refused_before_it_opens(api: RunningApi, rin: httpx.AsyncClient, desk: str) -> None:
    browser, host = await _enters(api, rin, desk), api.url.removeprefix("http://")
    ours = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}", "Origin": f"http://{host}"}
    for headers, status in OPENINGS:
        given = {name: ours[name] if "OURS" in value else value for name, value in headers.items()}
        opening = connect(
            f"ws://{host}{to(desk, '/socket')}", additional_headers=given, proxy=None, open_timeout=PATIENCE_SECONDS
        )
        if status == 101:
            async with opening as socket:
                assert COOKIE not in str(await socket.recv())
            continue
        with pytest.raises(InvalidStatus) as refused:
            async with opening:
                pass
        assert refused.value.response.status_code == status, headers


async def test_a_websocket_to_any_other_place_is_refused(api: RunningApi, rin: httpx.AsyncClient) -> None:
    for path, headers, status in (
        ("/v1/jobs", {}, 401),
        ("/nothing", {}, 401),
        ("/v1/events", {"Authorization": rin.headers["authorization"]}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(
                f"{api.url.replace('http', 'ws', 1)}{path}",
                additional_headers=headers,
                proxy=None,
                open_timeout=PATIENCE_SECONDS,
            ):
                pass
        assert refused.value.response.status_code == status, path


async def test_a_body_is_limited_by_the_path_that_is_asked_for_not_by_what_the_host_header_makes_of_it(
    api: RunningApi, rin: httpx.AsyncClient, desk: str
) -> None:
    for host in (f"h{to(desk)}?", "h/v1/snapshots/?"):
        response = await rin.post("/v1/jobs", content=b"x" * 600_000, headers={"Host": host})
        assert response.status_code in (413, 415), host


async def test_a_browser_is_shown_a_page_that_looks_again(rin: httpx.AsyncClient, desk: str, watcher: Watcher) -> None:
    watcher.ports[desk] = None
    page = await rin.get(to(desk), headers={"Accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert 'http-equiv="refresh"' in page.text
    assert "127.0.0.1, port $TIDEGATE_PORT" in page.text
    await rin.post(f"/v1/workstations/{desk}/stop")
    page = await rin.get(to(desk), headers={"Accept": "text/html"})
    assert (page.status_code, "it is being stopped" in page.text) == (409, True)


async def test_a_path_without_its_last_slash_leads_to_the_one_with_it(rin: httpx.AsyncClient, desk: str) -> None:
    response = await rin.get(to(desk, ""))
    assert (response.status_code, response.headers["location"]) == (307, to(desk, "/"))
    odd = await rin.get(to(desk, "/").replace("/proxy", "/pr%6Fxy"))
    assert odd.status_code == 404
