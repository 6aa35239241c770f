"""Addresses and numbers with letters in them: e-mail, IBAN, NRIC, passports, plates, IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from ipaddress import IPv6Address, ip_network

from gateway.core.guarding import Check, Finding
from gateway.guards.pii import checks
from gateway.guards.pii.context import Context, Last

_LOCAL_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-'") | frozenset(
    map(chr, range(0xC0, 0x250))
)
_LOCAL = "".join(sorted(_LOCAL_CHARS))
_MOST_LOCAL = 64  # RFC 5321 4.5.3.1.1
# A label ends where a dot has to, so that each character is tried once for each label's end at most: of 253 at most.
_DOMAIN = re.compile(
    r"(?:[0-9A-Za-z\u00c0-\u024f](?:[0-9A-Za-z\u00c0-\u024f-]{0,62})\.){1,8}([A-Za-z]{2,24})"
    r"(?![0-9A-Za-z_\u00c0-\u024f(@-])"
)
# What stands behind a dot in names of files and in programs, where `@` is a size, a decorator or a version.
_FILES = "png|jpg|jpeg|gif|svg|webp|ico|css|scss|js|jsx|ts|tsx|json|html|xml|yaml|yml|toml|lock"
_NO_TOP_LEVELS = frozenset(_FILES.split("|"))
_USER = re.compile(r"://[^\s/:@]*+:\Z")
_NO_PEOPLE = frozenset({"git"})  # `git@host:path` is where programs fetch code

# Each begins with the characters that the search looks for, and only then looks back: several times as fast.
_IBAN = re.compile(r"[A-Za-z](?<![0-9A-Za-z].)[A-Za-z][0-9]{2}(?=(?:[ \-]?[0-9A-Za-z]){11})")
_NRIC = re.compile(
    r"([STFGMstfgm])(?<![0-9A-Za-z_].)[ .\-]?([0-9](?:[ .\-]?[0-9]){6})[ .\-]?([A-Za-z])(?![0-9A-Za-z_])"
)
_PASSPORT = re.compile(r"[A-Za-z](?<![0-9A-Za-z_].)[A-Za-z]?[ \-]?[0-9]{6,7}[A-Za-z]?(?![0-9A-Za-z_])")
_PLATE = re.compile(r"([A-Za-z](?<![0-9A-Za-z_].)[A-Za-z]?)[ \-.]?[1-9][0-9]{0,3}[ \-.]?[A-Za-z]{1,3}(?![0-9A-Za-z_])")
_REGIONS = (
    "A|B|D|E|F|G|H|K|L|M|N|P|R|S|T|W|Z|AA|AB|AD|AE|AG|BA|BB|BD|BE|BG|BH|BK|BL|BM|BN|BP|DA|DB|DC|DD|DE|DG|DH|DK|DL|DM"
    "|DN|DP|DR|DS|DT|DW|EA|EB|ED|KB|KH|KT|KU|PA|PB|PG|PS|PT|PY"
)
_PLATES = frozenset(_REGIONS.split("|"))
_V4 = re.compile(
    r"([0-9](?<![0-9A-Za-z_.\-].)[0-9]{0,2})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})"
    r"(?![0-9A-Za-z_]|[.\-][0-9])"
)
_V6 = re.compile(r"[23](?<![0-9A-Za-z:.].)[0-9A-Fa-f]{3}:[0-9A-Fa-f:]{2,34}(?![0-9A-Za-z:])")
# What belongs to nobody: private, shared, for documents, for tests, 6to4 and Teredo.
_NOBODYS_V4 = re.compile(
    r"(?:0|10|127|2[2-5][0-9])\.|100\.(?:6[4-9]|[7-9][0-9]|1[01][0-9]|12[0-7])\.|169\.254\.|172\.(?:1[6-9]|2[0-9]|3[01])\."
    r"|192\.(?:0\.[02]\.|88\.99\.|168\.)|198\.(?:1[89]|51\.100)\.|203\.0\.113\."
)
_NOBODYS_V6 = (ip_network("2001::/23"), ip_network("2001:db8::/32"), ip_network("2002::/16"), ip_network("3fff::/20"))
_SERVICES = frozenset({"1.1.1.1", "1.0.0.1", "8.8.8.8", "8.8.4.4", "9.9.9.9"})  # resolvers that everybody has


def find_emails(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """E-mail addresses, by their `@`: a local part of at most 64 characters, labels, and a top level of letters."""
    at, last = text.find("@"), 0
    count = 0
    while at >= 0:
        count += 1
        if not count % 1024:
            check()
        front = text[max(at - _MOST_LOCAL - 1, last) : at]
        local = front[len(front.rstrip(_LOCAL)) :].lstrip(".%+-'")
        domain = None
        if local and len(local) <= _MOST_LOCAL and local[-1] != "." and ".." not in local:
            domain = _DOMAIN.match(text, at + 1, at + 255)
        if domain is not None and domain[1].lower() not in _NO_TOP_LEVELS:
            span = at - len(local), domain.end()
            if not _is_nobody(text, local, span):
                yield Finding("email", *span, 0.95, "an address with a plausible domain")
                last = domain.end()
        at = text.find("@", at + 1)


def _is_nobody(text: str, local: str, span: tuple[int, int]) -> bool:
    """Whether it is where programs fetch code, or the password and the host of a URL."""
    start, end = span
    if local in _NO_PEOPLE:
        return text[end : end + 1] in (":", "/")
    return text[start - 1 : start] == ":" and _USER.search(text, max(start - _MOST_LOCAL, 0), start) is not None


def find_ibans(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """Account numbers of countries of the registry, with or without spaces."""
    last = 0
    for count, found in enumerate(_IBAN.finditer(text)):
        if not count % 1024:
            check()
        size = checks.IBAN_CHARS.get(found[0][:2].upper())
        if size is None or found.start() < last:
            continue
        whole = _iban_of(size).match(text, found.start())
        if whole is not None and checks.is_iban(whole[0].replace(" ", "").replace("-", "").upper()):
            last = whole.end()
            yield Finding("iban", *whole.span(), 0.99, "a country's length and the check digits")


@cache
def _iban_of(size: int) -> re.Pattern[str]:
    return re.compile(rf"[0-9A-Za-z](?:[ \-]?[0-9A-Za-z]){{{size - 1}}}(?![0-9A-Za-z])")


def find_nrics(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """NRICs and FINs of Singapore, by their check letter."""
    check()
    for found in _NRIC.finditer(text):
        letter, digits, end = found.groups()
        is_plain = len(found[0]) == 9
        if letter.isupper() != end.isupper() or not (is_plain or letter.isupper()):
            continue  # words around a number
        if checks.is_nric(letter.upper(), digits if is_plain else "".join(re.findall("[0-9]", digits)), end.upper()):
            usual = is_plain and letter.isupper()
            yield Finding("nric", *found.span(), 0.95 if usual else 0.7, "its check letter")


def find_passports(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """Passports, behind a word for them."""
    yield from _said(_PASSPORT, "passport", (text, context, check))


def find_plates(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """Indonesian plates, by the code of their region, behind a word for a vehicle."""
    yield from _said(_PLATE, "plate", (text, context, check))


def _said(shape: re.Pattern[str], kind: str, where: tuple[str, Context, Check]) -> Iterator[Finding]:
    text, context, check = where
    last = Last()
    for count, found in enumerate(shape.finditer(text)):
        if not count % 1024:
            check()
        if kind == "plate" and found[1].upper() not in _PLATES:
            continue
        topic = context.before(text, found.start(), last)
        if topic.name == kind:
            last = Last(found.end(), topic)
            yield Finding(kind, *found.span(), 0.85, "its shape, behind a word for it")


def find_addresses(text: str, context: Context, check: Check) -> Iterator[Finding]:
    """IP addresses that can be somebody's; versions look the same, so a word for one in front makes it none."""
    for count, found in enumerate(_V4.finditer(text)):
        if not count % 1024:
            check()
        address, octets = found[0], found.groups()
        if any((len(octet) > 1 and octet[0] == "0") or int(octet) > 255 for octet in octets):
            continue
        if _NOBODYS_V4.match(address) or address in _SERVICES:
            continue
        topic = context.before(text, found.start(), Last()).name
        doubtful = all(int(octet) < 32 for octet in octets) or text[found.end() : found.end() + 1] == "/"
        score = 0.95 if topic == "ip" else 0.4 if topic == "other" or doubtful else 0.8
        yield Finding("ip", *found.span(), score, "an address of the public Internet")
    for count, found in enumerate(_V6.finditer(text)):
        if not count % 1024:
            check()
        if _is_public(found[0]):
            score = 0.4 if text[found.end() : found.end() + 1] == "/" else 0.9
            yield Finding("ip", *found.span(), score, "an address of the public Internet")


def _is_public(text: str) -> bool:
    if "::" not in text and text.count(":") != 7:
        return False
    try:
        address = IPv6Address(text)
    except ValueError:
        return False
    return not any(address in network for network in _NOBODYS_V6)
