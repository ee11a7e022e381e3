"""What passes the proxy of workstations: targets, redirects, cookies and headers, each as a table."""

import pytest

from services.api.proxy_headers import Place, answered, asked, asked_for_a_socket, cookies_named

PREFIX = "/v1/workstations/j1/proxy"
STRIPS = Place(PREFIX, keeps_prefix=False, port=41000, host="tidegate.example:8420")
KEEPS = Place(PREFIX, keeps_prefix=True, port=41000, host="tidegate.example:8420")


@pytest.mark.parametrize(
    ("place", "path", "query", "target"),
    [
        (STRIPS, f"{PREFIX}/", "", "/"),
        (STRIPS, f"{PREFIX}/a%2Fb", "x=%20", "/a%2Fb?x=%20"),
        (STRIPS, f"{PREFIX}//evil.example/", "", "//evil.example/"),
        (KEEPS, f"{PREFIX}/lab", "a", f"{PREFIX}/lab?a"),
    ],
)
def test_a_target_is_the_path_as_it_came_without_the_prefix(place: Place, path: str, query: str, target: str) -> None:
    assert place.target(path.encode(), query.encode()) == target.encode()


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("/login?next=%2F", f"{PREFIX}/login?next=%2F"),
        ("sub/", "sub/"),
        ("?page=2", "?page=2"),
        (f"{PREFIX}/lab", f"{PREFIX}/lab"),
        (f"{PREFIX}x", f"{PREFIX}{PREFIX}x"),
        ("http://127.0.0.1:41000/a", f"{PREFIX}/a"),
        ("https://tidegate.example:8420/a#b", f"{PREFIX}/a#b"),
        ("http://127.0.0.1:41001/a", "http://127.0.0.1:41001/a"),
        ("https://elsewhere.example/a", "https://elsewhere.example/a"),
        ("//elsewhere.example/a", "//elsewhere.example/a"),
        ("http://[", None),
    ],
)
def test_a_redirect_stays_below_the_prefix_or_leads_where_it_says(given: str, shown: str | None) -> None:
    assert STRIPS.location(given) == shown
    assert KEEPS.location(given) == shown


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("a=1", f"a=1; Path={PREFIX}/"),
        ("a=1; Path=/; Domain=.example; Secure; SameSite=Lax", f"a=1; Secure; SameSite=Lax; Path={PREFIX}/"),
        ("a=1; PATH=/sub; path=/last", f"a=1; Path={PREFIX}/last"),
        (f"_xsrf=2|x; Path={PREFIX}/", f"_xsrf=2|x; Path={PREFIX}/"),
        ("a=1; Path=elsewhere", f"a=1; Path={PREFIX}"),
        ("tidegate-workstation=theirs; Path=/", None),
        (" tidegate-workstation =theirs", None),
    ],
)
def test_a_cookie_stays_below_the_prefix_and_never_bears_our_name(given: str, kept: str | None) -> None:
    assert STRIPS.cookie(given) == kept


def test_nothing_that_let_the_caller_in_or_is_about_one_connection_is_asked_with() -> None:
    given = [
        (b"Host", b"tidegate.example:8420"),
        (b"Authorization", b"Bearer of-the-caller"),
        (b"Cookie", b"tidegate-workstation=ours; theirs=1"),
        (b"cookie", b"more=2"),
        (b"Connection", b"close, X-Named"),
        (b"X-Named", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Upgrade", b"h2c"),
        (b"TE", b"trailers"),
        (b"Forwarded", b"for=evil"),
        (b"X-Forwarded-For", b"evil"),
        (b"X-Real-IP", b"evil"),
        (b"Accept", b"text/html"),
    ]
    assert asked(given, STRIPS, client="10.0.0.1", scheme="https", secret="s") == [
        (b"host", b"tidegate.example:8420"),
        (b"accept", b"text/html"),
        (b"cookie", b"theirs=1; more=2"),
        (b"authorization", b"token s"),
        (b"x-forwarded-for", b"10.0.0.1"),
        (b"x-forwarded-host", b"tidegate.example:8420"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-prefix", PREFIX.encode()),
    ]


def test_a_body_in_chunks_has_no_other_length() -> None:
    given = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked"), (b"X", b"1")]
    asked_with = asked(given, STRIPS, client="c", scheme="http", secret="s")
    assert b"content-length" not in dict(asked_with)
    assert list(answered(given, STRIPS)) == [(b"x", b"1")]
    assert list(answered(given[:1], STRIPS)) == [(b"content-length", b"5")]


def test_a_sockets_own_handshake_is_not_asked_with_twice() -> None:
    given = [(b"host", b"h"), (b"origin", b"o"), (b"sec-websocket-key", b"k"), (b"user-agent", b"u")]
    assert asked_for_a_socket(given) == [("user-agent", "u")]


def test_nothing_that_acts_on_the_whole_address_is_answered_with() -> None:
    given = [
        (b"Content-Type", b"text/html"),
        (b"Content-Encoding", b"gzip"),
        (b"Service-Worker-Allowed", b"/"),
        (b"Strict-Transport-Security", b"max-age=1"),
        (b"Clear-Site-Data", b'"*"'),
        (b"Alt-Svc", b"h3"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=1"),
    ]
    assert list(answered(given, STRIPS)) == [
        (b"content-type", b"text/html"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", f"a=1; Path={PREFIX}/".encode()),
        (b"set-cookie", f"b=1; Path={PREFIX}/".encode()),
    ]


def test_all_cookies_of_a_name_are_found() -> None:
    assert cookies_named("a", "a=1; b=2;a=3=4; aa=5") == ["1", "3=4"]
