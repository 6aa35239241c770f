"""Header values: what we write, what we let through, what we believe."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from gateway.core.catalog import ClientDialectName
from gateway.core.unshown import UNSHOWN

MAX_VALUE_CHARS = 256  # contract.md 4: every x-anoman-* value is a word or two; proxies take 8 KiB of headers in all
MAX_ID_CHARS = 256  # of a session, agent or user id: identifiers, not texts
MAX_RETRY_AFTER_S = 3600.0  # an upstream that wants a longer pause is as good as gone for this request
_MAX_RETRY_AFTER_CHARS = 64  # the longest HTTP-date (RFC 850 form, RFC 9110 5.6.7) has 33

# Client headers that may go upstream, by the dialect they came in by. All others stay here (PRX-01, PRX-02, B14).
FORWARDED: Mapping[ClientDialectName, tuple[str, ...]] = {
    "openai_chat": ("openai-beta",),
    "anthropic_messages": ("anthropic-version", "anthropic-beta"),
}

_CONTROLS = bytes(range(0x20)) + b"\x7f"
_UNCLEAN = re.compile(f"[{UNSHOWN}]+")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
_PORT = r"(?::(?P<port>[1-9][0-9]{0,4}))?"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"  # RFC 1123 2.1, and `_` as in container host names
_NAMED = re.compile(rf"(?P<host>{_LABEL}(?:\.{_LABEL})*)\.?{_PORT}")
_BRACKETED = re.compile(rf"\[(?P<host>[0-9A-Fa-f:.]{{2,45}})\]{_PORT}")
_MAX_HOST_CHARS = 260  # 253 of a DNS name, its last dot, a colon and five digits


def header_value(value: object) -> str:
    """*value* as a response header's value: printable ASCII, at most `MAX_VALUE_CHARS`, whatever it was.

    Controls (CR and LF above all) are removed, characters outside ASCII become `?`; true and false are lower case.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = str(value)
    except ValueError:  # an integer of more digits than Python prints
        return "?"
    # Cut twice: a megabyte is not to be cleaned for the sake of its first 256 characters.
    clean = text[: 4 * MAX_VALUE_CHARS].encode("ascii", "replace").translate(None, _CONTROLS)
    return clean[:MAX_VALUE_CHARS].decode("ascii").strip()


def clean_text(value: str, limit: int) -> str:
    """*value* for logs, stores and terminals: nothing of `UNSHOWN`, at most *limit* chars."""
    return _UNCLEAN.sub("", value[: 4 * limit])[:limit]


def is_true(value: str | None) -> bool:
    """Whether an on/off request header is on: `1` or `true` in any case."""
    return value is not None and value.strip().lower() in ("1", "true")


def parse_retry_after(headers: Mapping[str, str], now_epoch_s: float) -> float | None:
    """The pause an upstream asks for, in seconds from 0 to `MAX_RETRY_AFTER_S`, or None when it says nothing usable.

    Args:
        headers: Lower-case names, or a case-insensitive mapping.
        now_epoch_s: What a date is measured against.
    """
    millis, seconds = (headers.get(name, "").strip() for name in ("retry-after-ms", "retry-after"))
    wait_s: float | None = None
    if len(millis) <= _MAX_RETRY_AFTER_CHARS and _NUMBER.fullmatch(millis):
        wait_s = float(millis) / 1000
    elif len(seconds) <= _MAX_RETRY_AFTER_CHARS:
        if _NUMBER.fullmatch(seconds):
            wait_s = float(seconds)
        elif (until_epoch_s := _date(seconds)) is not None:
            wait_s = until_epoch_s - now_epoch_s
    return None if wait_s is None else min(max(0.0, wait_s), MAX_RETRY_AFTER_S)


def _date(text: str) -> float | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    # `-0000` gives a date without zone, which Python would take for local time.
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def valid_host(value: str) -> bool:
    """Whether a Host header is `host` or `host:port`: a DNS name, an IPv4 address or a bracketed IPv6 address."""
    if len(value) > _MAX_HOST_CHARS:
        return False
    bracketed = value.startswith("[")
    match = (_BRACKETED if bracketed else _NAMED).fullmatch(value)
    if match is None or int(match["port"] or 1) > 65535:
        return False
    host = match["host"]
    try:
        if bracketed:
            IPv6Address(host)
        elif host.rpartition(".")[2].isdigit():  # a last label of digits makes it an address, not a name
            IPv4Address(host)
    except AddressValueError:
        return False
    return len(host) <= 253  # RFC 1035 2.3.4, without the last dot
