"""Headers: nothing we write breaks an answer, nothing we were sent leaks on."""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.catalog import ClientDialectName
from gateway.wire.headers import FORWARDED, clean_text, header_value, is_true, parse_retry_after, valid_host
from tests.support.scale import examples

NOW_S = 1_700_000_000.0


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.text(st.characters(), max_size=600) | st.integers() | st.floats() | st.none() | st.booleans() | st.binary())
def test_h10_header_values_are_printable_ascii(value: object) -> None:
    """H10, E12: whatever the value, the header is printable ASCII of at most 256 characters."""
    encoded = header_value(value)

    assert len(encoded) <= 256
    assert all(" " <= char <= "~" for char in encoded)
    assert encoded == encoded.strip()


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("pass score=0.02", "pass score=0.02"),
        ("a\r\nx-evil: 1\x00\x7f\t", "ax-evil: 1"),
        ("Jakarta é 🦀\ud800", "Jakarta ? ??"),
        (" padded ", "padded"),
        ("x" * 300, "x" * 256),
        ("\n" * 100 + "x" * 300, "x" * 256),
        (True, "true"),
        (False, "false"),
        (60, "60"),
        (10**5000, "?"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_header_values(value: object, encoded: str) -> None:
    """Controls go, foreign characters become `?`, booleans are lower case, all else is `str`."""
    assert header_value(value) == encoded


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ("session-1 é🦀", "session-1 é🦀"),
        ("a\x00b\ud800c\r\nd\x1b[31m\x7f\x9f", "abcd[31m"),
        ("a\u2028b\u2029c\u0085d", "abcd"),
        ("a\u202ecod.exe\u2066b\u2069\u200f\u061c", "acod.exeb"),
        ("\ufeffad\u200bmin\xad\u2060\ufff9\U000e0041", "admin"),
        ("\u0645\u06cc\u200c\u062e 👩\u200d👧 \u0600", "\u0645\u06cc\u200c\u062e 👩\u200d👧 \u0600"),
        ("x" * 40, "x" * 16),
        ("\x00" * 10 + "x" * 40, "x" * 16),
        ("\x00" * 64 + "x", ""),
    ],
)
def test_h22_clean_text(value: str, clean: str) -> None:
    """H22: ids that go to logs, stores and terminals have nothing that steers or that nobody sees, and a bound; what
    scripts and emoji are joined by stays."""
    assert clean_text(value, 16) == clean


def test_every_dialect_says_what_it_forwards() -> None:
    """PRX-01, PRX-02, B14: each dialect has its allow-list, in lower case, without credentials, cookies or framing."""
    never = {"authorization", "x-api-key", "cookie", "connection", "te", "host", "forwarded", "content-length"}

    assert set(FORWARDED) == set(get_args(ClientDialectName))
    for names in FORWARDED.values():
        assert not never & set(names)
        assert all(name == name.lower() for name in names)
        assert not any(name.startswith(("x-anoman", "anoman", "x-forwarded")) for name in names)


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
        ({"retry-after-ms": "-1"}, 0.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "86400"}, 3600.0),
        ({"retry-after": "9" * 64}, 3600.0),
        ({"retry-after": "9" * 65}, None),
        ({"retry-after": formatdate(NOW_S + 30, usegmt=True)}, 30.0),
        ({"retry-after": formatdate(NOW_S - 30, usegmt=True)}, 0.0),
        ({"retry-after": formatdate(NOW_S + 90_000, usegmt=True)}, 3600.0),
        ({"retry-after": "Tue, 14-Nov-23 22:14:20 GMT"}, 60.0),
        ({"retry-after-ms": formatdate(NOW_S + 30, usegmt=True)}, None),
        ({"retry-after": "Wed, 99 Nov 0000 99:99:99 GMT"}, None),
    ],
)
def test_a10_retry_after(headers: dict[str, str], wait_s: float | None) -> None:
    """A10: milliseconds before seconds before a date, never negative, never above an hour."""
    assert parse_retry_after(headers, NOW_S) == wait_s


def test_a10_date_without_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A10: a date with zone -0000 is UTC, wherever the gateway runs."""
    monkeypatch.setenv("TZ", "Asia/Jakarta")
    time.tzset()
    try:
        wait_s = parse_retry_after({"retry-after": "Tue, 14 Nov 2023 22:14:20 -0000"}, NOW_S)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert wait_s == 60.0


@pytest.mark.parametrize("text", ["", "soon", "1e3", "inf", "nan", "0x10", "+1", "1,5", "\u0661", "1 2", "Nov", "\x00"])
def test_a10_retry_after_that_says_nothing(text: str) -> None:
    """A10: nonsense is no wait at all."""
    assert parse_retry_after({"retry-after": text}, NOW_S) is None
    assert parse_retry_after({"retry-after-ms": text}, NOW_S) is None


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.text(st.sampled_from("0123456789.-+: ,GMTNovWed"), max_size=40) | st.text(max_size=40))
def test_a10_retry_after_never_raises(text: str) -> None:
    """A10: no text of an upstream raises, and every wait is between zero and an hour."""
    wait_s = parse_retry_after({"retry-after": text}, NOW_S)

    assert wait_s is None or 0 <= wait_s <= 3600


@pytest.mark.parametrize(
    ("value", "on"),
    [("1", True), ("true", True), ("TRUE", True), (" True ", True), (None, False), ("", False), ("0", False),
     ("false", False), ("yes", False), ("11", False)],
)  # fmt: skip
def test_switches(value: Any, on: bool) -> None:
    """`1` and `true` switch on, in any case; nothing else does."""
    assert is_true(value) is on


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "gateway.example.com", "gateway.example.com.:443", "my_service:8080",
     "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:8080", "[::ffff:127.0.0.1]:1", "xn--bcher-kva.example",
     "a" * 63 + ".b", "1a.2b",
     ".".join(["a" * 63] * 3 + ["b" * 61]) + ".:8080"],
)  # fmt: skip
def test_h8_hosts(host: str) -> None:
    """H8: names, IPv4 and bracketed IPv6 addresses are hosts, with a port or without."""
    assert valid_host(host)


@pytest.mark.parametrize(
    "host",
    ["", ":80", "host:", "host:0", "host:65536", "host:99999", "host:123456", "host:080", "host:8o", "host:-1", "a b",
     "a/b", "user@host", "http://host", "host\n", "host:80\n", "host\r\nx: y", "a..b", ".a", "-a", "a-", "::1",
     "[::1", "[::1]x", "[::1]:", "[::g]", "[1.2.3.4]", "[fe80::1%eth0]", "[]", "1.2.3", "1.2.3.256", "01.2.3.4",
     "999.1.1.1", "a.1", "h\u00e9", "\u0661.1.1.1", "a" * 64, ".".join(["a" * 50] * 6),
     ".".join(["a" * 63] * 3 + ["b" * 62]), "a,b", "a\\b", "a?b", "a#b", "a%2e"],
)  # fmt: skip
def test_h8_no_hosts(host: str) -> None:
    """H8: anything else is not."""
    assert not valid_host(host)
