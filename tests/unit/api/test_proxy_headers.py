"""Which headers pass the proxy of workstations."""

import dataclasses

from services.api.proxy_headers import WITHHELD, answered, asked, asked_for_a_socket, cookies_named
from services.api.proxy_place import Place

PREFIX = "/v1/workstations/j1/proxy"
STRIPS = Place(PREFIX, keeps_prefix=False, port=41000, host="tidegate.example:8420", path="/")
FRAMED = (b"content-security-policy", b"frame-ancestors 'self'")


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
        (b"Referer", b"http://tidegate.example:8420/?a=1&tidegate%2Dticket=t"),
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


def test_whoever_is_behind_is_named_once_and_told_how_long_the_body_is() -> None:
    given = [(b"Host", b"one"), (b"Host", b"two"), (b"Connection", b"host, Content-Length"), (b"Content-Length", b"5")]
    nameless = dataclasses.replace(STRIPS, host="")
    for place, name in ((STRIPS, b"tidegate.example:8420"), (nameless, b"127.0.0.1:41000")):
        sent = asked(given, place, client="c", scheme="http", secret="s")
        assert sent[:2] == [(b"host", name), (b"content-length", b"5")]
    assert list(answered(given[2:], STRIPS)) == [(b"content-length", b"5"), FRAMED]


def test_a_body_in_chunks_has_no_other_length() -> None:
    given = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked"), (b"X", b"1")]
    asked_with = asked(given, STRIPS, client="c", scheme="http", secret="s")
    assert b"content-length" not in dict(asked_with)
    assert list(answered(given, STRIPS)) == [(b"x", b"1"), FRAMED]
    assert list(answered(given[:1], STRIPS)) == [(b"content-length", b"5"), FRAMED]


def test_a_sockets_own_handshake_is_not_asked_with_twice() -> None:
    given = [(b"host", b"h"), (b"origin", b"o"), (b"sec-websocket-key", b"k"), (b"user-agent", b"u")]
    assert asked_for_a_socket(given) == [("user-agent", "u")]


def test_nothing_that_acts_on_the_whole_address_is_answered_with() -> None:
    given = [
        (b"Content-Type", b"text/html"),
        (b"Content-Encoding", b"gzip"),
        *((name.title(), b"1") for name in WITHHELD),
        (b"Keep-Alive", b"timeout=5"),
        (b"Server-Timing", b"a\x01b"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=1"),
    ]
    assert list(answered(given, STRIPS)) == [
        (b"content-type", b"text/html"),
        (b"content-encoding", b"gzip"),
        (b"set-cookie", f"a=1; Path={PREFIX}/".encode()),
        (b"set-cookie", f"b=1; Path={PREFIX}/".encode()),
        FRAMED,
    ]


def test_all_cookies_of_a_name_are_found() -> None:
    assert cookies_named("a", "a=1; b=2;a=3=4; aa=5") == ["1", "3=4"]
