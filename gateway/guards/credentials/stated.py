"""Secrets without a format of their own: private keys between their lines, and values that words say are secret."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gateway.core.guarding import Finding
from gateway.guards.credentials.entropy import entropy, is_dummy, is_random
from gateway.guards.disguise import lowered

BEGIN_SEED = "-----BEGIN [A-Z0-9 ]{0,24}PRIVATE KEY"
_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,2}PRIVATE KEY(?: BLOCK)?-----")
_NEXT_LINE = r"(?:\s|\\[nr]){1,4}"
# A first piece of the key, or a header in front of it: without either it is talk of a key.
_PROOF = re.compile(_NEXT_LINE + r"(?:[0-9A-Za-z+/]{16}|[A-Z][A-Za-z-]{1,12}: )")
_BODY = re.compile(
    rf"(?:{_NEXT_LINE}(?:[A-Z][A-Za-z-]{{1,12}}: [^\r\n\0]{{1,80}}|[0-9A-Za-z+/=]{{16,}}+(?![0-9A-Za-z+/=])))*+"
    rf"(?:{_NEXT_LINE}[0-9A-Za-z+/=]{{1,15}}+(?=\s{{0,4}}(?:\\[nr]){{0,4}}(?:-----END|\Z)))?"
)
_END = re.compile(r"\s{0,4}(?:\\[nr]){0,4}-----END [A-Z0-9 ]{1,40}-----")

URL_SEED = r"://[^\s/:@?#\"'<>]{0,64}:[^\s/@\"'<>]"
_URL = re.compile(r"://[^\s/:@?#\"'<>\0]{0,64}+:([^\s/@\"'<>\[\]\0]{3,128}+)@[0-9A-Za-z\[]")

HEADER_SEED = r"(?i)(?:bearer|basic)[ ]{1,3}[0-9A-Za-z+/=_.~\-]{16}"
_HEADER = re.compile(r"(?:bearer|basic) {1,3}([0-9A-Za-z+/=_.~\-]{16,}+)", re.IGNORECASE)

AWS_SEED = r"(?i)secret.?access.?key"
_AWS = re.compile(r"secret.?access.?key[\"'\s:=>]{1,6}([0-9A-Za-z/+]{40})(?![0-9A-Za-z/+=])", re.IGNORECASE)

_NAMES = (
    r"pass(?:word|wd|phrase|code)|pwd|kata[ _\-]?sandi|sandi"
    r"|secret(?:[_\-]?key)?|api[_\-]?key|access[_\-]?key|private[_\-]?key|auth[_\-]?key|client[_\-]?secret"
    r"|(?:access|auth|refresh|bot)[_\-]?token|token"
)
# What says that a value follows.
_SAYS = (
    r"(?:nya|[ ](?:saya|aku|kami|baru|lama))?[\"'`\]]{0,2}[ \t]{0,3}"
    r"(?:=>|:=|={1,2}|:|[ ]?adalah[ ]|[ ]?is[ ])[ \t]{0,3}"
)
NAMED_SEED = rf"(?i)(?:{_NAMES}){_SAYS}[^\s]{{4}}"
_NAME = re.compile(_NAMES)  # of a text in lower case: so the search knows with which characters it may begin
# The value: in quotes, or up to a blank or a sign that ends one.
_VALUE = re.compile(
    rf"{_SAYS}(?:[\"'`](?P<quoted>[^\s\"'`\0]{{6,128}}+)|(?P<plain>[^\s\"'`,;<>(){{}}\[\]&|\0]{{6,128}}+)(?![(\[{{<]))",
    re.IGNORECASE,
)
_PASSWORD_NAMES = ("pass", "pwd", "kata", "sandi")
_LONG = 8  # names from here on count inside a word, too: `PGPASSWORD`
# Names and expressions of programs, words, dates: no values.
_CODE = re.compile(r"[A-Za-z_][A-Za-z_.:!?]*|[A-Z][A-Z0-9_]*|[$%\\/].*|https?:.*|[0-9.\-:/+TZ]+")
_NUMBER = re.compile("[0-9]{6,16}")
_MADE_UP = re.compile(r"(?=.*[A-Za-z])(?:.*[0-9]|.*[^0-9A-Za-z_.\-/])")


def find_private_keys(text: str) -> Iterator[Finding]:
    """Private keys in PEM, from the line that begins them to the one that ends them, or as far as they go."""
    last = 0
    for found in _BEGIN.finditer(text):
        if found.start() < last or _PROOF.match(text, found.end()) is None:
            continue
        body = _BODY.match(text, found.end())
        end = found.end() if body is None else body.end()
        closed = _END.match(text, end)
        last = end if closed is None else closed.end()
        yield Finding("private_key", found.start(), last, 1.0, "the line that begins one, and the beginning of a key")


def find_url_passwords(text: str) -> Iterator[Finding]:
    """Passwords in URLs: `postgresql://name:password@host`."""
    for found in _URL.finditer(text):
        if not is_dummy(found[1]) and not found[1].startswith(("$", "%")):
            yield Finding("url_password", *found.span(1), 0.9, "it stands where a URL has its password")


def find_header_tokens(text: str) -> Iterator[Finding]:
    """What stands behind `Bearer` and `Basic`."""
    for found in _HEADER.finditer(text):
        if is_random(found[1]) or (found[0][1] in "Aa" and found[1].endswith("=") and entropy(found[1]) > 3):
            yield Finding("bearer_token", *found.span(1), 0.85, "it stands behind the word for it in a header")


def find_aws_secrets(text: str) -> Iterator[Finding]:
    """The secret half of an AWS key, which has no prefix, behind its usual name."""
    for found in _AWS.finditer(text):
        if is_random(found[1], 3.5):
            yield Finding("aws_secret", *found.span(1), 0.95, "its length and alphabet, behind its usual name")


def find_named(text: str) -> Iterator[Finding]:
    """Values of what is called a password, a secret, a key or a token."""
    lower = lowered(text)
    last = 0
    for name in _NAME.finditer(lower):
        if name.start() < last or not _is_name(text, *name.span()):
            continue
        found = _VALUE.match(text, name.end())
        if found is None:
            continue
        group = "quoted" if found["quoted"] is not None else "plain"
        value = found[group] if group == "quoted" else found[group].rstrip(".?")
        is_password = name[0].startswith(_PASSWORD_NAMES)
        if _is_password(value) if is_password else _is_secret(value):
            start = found.start(group)
            last = start + len(value)
            kind = "password" if is_password else "secret"
            yield Finding(kind, start, last, 0.8, "a value drawn or made up, behind a word for one")


def _is_name(text: str, start: int, end: int) -> bool:
    """Whether it is no piece of a longer word, or one that is written in one with others."""
    before = text[start - 1 : start]
    return not before.isalnum() or end - start >= _LONG or (text[start].isupper() and before.islower())


def _is_secret(value: str) -> bool:
    return len(value) >= 16 and is_random(value) and _CODE.fullmatch(value) is None


def _is_password(value: str) -> bool:
    if _NUMBER.fullmatch(value) is not None:
        return True
    if len(value) < 6 or _MADE_UP.match(value) is None or _CODE.fullmatch(value) is not None:
        return False
    return entropy(value) > 1.8 and not is_dummy(value)
