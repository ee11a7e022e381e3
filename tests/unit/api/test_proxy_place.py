"""What becomes of the addresses that a workstation's process writes: targets, redirects, cookies, each as a table."""

import dataclasses

import pytest

from services.api.proxy_place import Place

PREFIX = "/v1/workstations/j1/proxy"
STRIPS = Place(PREFIX, keeps_prefix=False, port=41000, host="tidegate.example:8420", path="/a/b")
KEEPS = dataclasses.replace(STRIPS, keeps_prefix=True)


@pytest.mark.parametrize(
    ("place", "path", "query", "target"),
    [
        (STRIPS, "/", "", "/"),
        (STRIPS, "/a%2Fb", "x=%20", "/a%2Fb?x=%20"),
        (STRIPS, "//evil.example/", "", "//evil.example/"),
        (KEEPS, "/lab", "a", f"{PREFIX}/lab?a"),
        (STRIPS, "/", "tidegate-ticket=t", "/"),
        (KEEPS, "/", "a=%26&tidegate-ticket=t&&b", f"{PREFIX}/?a=%26&&b"),
        (STRIPS, "/", "%74idegate%2Dticket=t&tidegate-ticket&x-tidegate-ticket=1", "/?x-tidegate-ticket=1"),
    ],
)
def test_a_target_is_as_it_came_without_the_prefix_and_a_ticket(
    place: Place, path: str, query: str, target: str
) -> None:
    assert dataclasses.replace(place, path=path).target(query.encode()) == target.encode()


REDIRECTS: list[tuple[str, str | None]] = [
    ("/login?next=%2F", f"{PREFIX}/login?next=%2F"),
    ("sub/", f"{PREFIX}/a/sub/"),
    ("?page=2", "?page=2"),
    ("#there", "#there"),
    ("", ""),
    (f"{PREFIX}/lab", f"{PREFIX}/lab"),
    (f"{PREFIX}x", f"{PREFIX}{PREFIX}x"),
    ("http://127.0.0.1:41000/a", f"{PREFIX}/a"),
    ("https://tidegate.example:8420/a#b", f"{PREFIX}/a#b"),
    ("http://127.0.0.1:41001/a", "http://127.0.0.1:41001/a"),
    ("https://elsewhere.example/a/../b", "https://elsewhere.example/a/../b"),
    ("//elsewhere.example/a", "//elsewhere.example/a"),
    ("\\\\elsewhere.example\\a", "\\\\elsewhere.example\\a"),
    ("mailto:somebody@elsewhere.example", "mailto:somebody@elsewhere.example"),
    ("http://[", None),
    ("../../../../jobs", f"{PREFIX}/jobs"),
    ("..\\..\\..\\jobs", f"{PREFIX}/jobs"),
    ("%2e%2E/.%2e/%2e./jobs/.", f"{PREFIX}/jobs/"),
    ("./c/..", f"{PREFIX}/a/"),
    (" .\t./.\t./jobs", f"{PREFIX}/jobs"),
    ("/../v1/jobs", f"{PREFIX}/v1/jobs"),
    (f"{PREFIX}/../../../jobs?a=/../b", f"{PREFIX}/v1/jobs?a=/../b"),
    (f"{PREFIX}\\..\\..\\j2\\proxy\\", f"{PREFIX}/v1/workstations/j2/proxy/"),
    (f"{PREFIX}/%2e%2e/%2E./j2/proxy/", f"{PREFIX}/v1/workstations/j2/proxy/"),
    (f"{PREFIX}/x/%2e%2e/lab", f"{PREFIX}/lab"),
    ("http://tidegate.example:8420", f"{PREFIX}/"),
    ("http://tidegate.example:8420?a", f"{PREFIX}/?a"),
    ("http://me@TideGate.example:8420/v1/jobs", f"{PREFIX}/v1/jobs"),
    ("http:/v1/jobs", f"{PREFIX}/v1/jobs"),
    ("http:../../../jobs", f"{PREFIX}/jobs"),
    ("/.//elsewhere.example", f"{PREFIX}//elsewhere.example"),
    ("///elsewhere.example", f"{PREFIX}/elsewhere.example"),
]


@pytest.mark.parametrize(("given", "shown"), REDIRECTS)
def test_a_redirect_stays_below_the_prefix_or_leads_where_it_says(given: str, shown: str | None) -> None:
    assert STRIPS.location(given) == shown
    assert KEEPS.location(given) == shown


def test_a_redirect_to_this_server_is_known_by_its_name_on_any_usual_port() -> None:
    place = dataclasses.replace(STRIPS, host="tidegate.example")
    for name in ("http://tidegate.example", "https://tidegate.example:443", "http://tidegate.example:80"):
        assert place.location(f"{name}/v1/jobs") == f"{PREFIX}/v1/jobs", name
    assert place.location("http://tidegate.example:8420/v1") == "http://tidegate.example:8420/v1"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("5", "5"),
        (" 0.5 ; URL = '/a' or so", f"0.5;url={PREFIX}/a"),
        ('0;url="../../../../jobs"', f"0;url={PREFIX}/jobs"),
        ("0,/v1/jobs", f"0;url={PREFIX}/v1/jobs"),
        ("0 \\v1\\jobs", f"0;url={PREFIX}/v1/jobs"),
        ("0;url=https://elsewhere.example/", "0;url=https://elsewhere.example/"),
        ("0;url=http://[", None),
        ("soon; url=/", None),
    ],
)
def test_a_refresh_leads_where_a_redirect_would(given: str, shown: str | None) -> None:
    assert STRIPS.refresh(given) == shown


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a=1", f"a=1; Path={PREFIX}/"),
        ("a=1; Path=/; Domain=.example; Secure; SameSite=Lax", f"a=1; Secure; SameSite=Lax; Path={PREFIX}/"),
        ("a=1; PATH=/sub; path=/last", f"a=1; Path={PREFIX}/last"),
        (f"_xsrf=2|x; Path={PREFIX}/", f"_xsrf=2|x; Path={PREFIX}/"),
        ("a=1; Path=elsewhere", f"a=1; Path={PREFIX}"),
        (f"a=1; Path={PREFIX}/../../j2/proxy", f"a=1; Path={PREFIX}/v1/workstations/j2/proxy"),
        (f"a=1; Path={PREFIX}/%2e%2E\\..", f"a=1; Path={PREFIX}/v1/workstations/"),
        ("tidegate-workstation=theirs; Path=/", None),
        (" tidegate-workstation =theirs", None),
        ("=tidegate-workstation=theirs", None),
        (" = tidegate-workstation=theirs", None),
    ],
)
def test_a_cookie_stays_below_the_prefix_and_never_bears_our_name(given: str, kept: str | None) -> None:
    assert STRIPS.cookie(given) == kept
