"""Checks that a type cannot express. Each returns the value to keep or raises ValueError with a phrase.

The phrase follows "is" ("not a URL"); it never repeats the value, which may hold a credential.
"""

from __future__ import annotations

import datetime
import re
from math import isfinite
from urllib.parse import SplitResult, urlsplit

from gateway.core.account_checks import LABEL, MAX_MODELS, MODEL, NO_LABEL, SLUG
from gateway.guards.globs import MAX_GLOB_CHARS
from gateway.settings.fields import Secret
from gateway.wire import hops

# RFC 6750's token characters: what every client can send after "Bearer".
_GATEWAY_KEY = re.compile(r"anm-sk-[A-Za-z0-9._~+/=-]{1,256}")
_HEADER_SAFE = re.compile(r"[\x21-\x7e]{1,8192}")  # one header line of aiohttp's parser takes 8190 bytes
_AWS_REGION = re.compile(r"[a-z]{2,4}(-[a-z]{2,16}){1,3}-[0-9]{1,2}")
_REGION = re.compile(r"[A-Za-z0-9-]{1,32}")
_HOST = re.compile(r"[A-Za-z0-9.:%_-]{1,253}")  # a name has at most 253 characters (RFC 1035)
_KIND = re.compile(r"[a-z0-9_]{1,32}")
MAX_GLOBS = 256  # every name is held against each of them
_PASSWORD = re.compile(r"(?<=://)[^/?#]*@")


def base_url(text: str) -> str:
    """An absolute http(s) URL without credentials, query or fragment; a slash at the end is dropped."""
    parts = _split(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an http:// or https:// URL")
    if "@" in parts.netloc:
        raise ValueError("a URL with credentials; put the key into api_key")
    if "?" in text or "#" in text:
        raise ValueError("a URL with a query or a fragment; only a path may follow the host")
    return text.rstrip("/")


def database_url(text: str) -> str:
    """A SQLite or Postgres URL."""
    parts = _split(text)
    if parts.scheme not in ("sqlite", "postgres", "postgresql"):
        raise ValueError("not a sqlite:, postgres: or postgresql: URL")
    if parts.scheme == "sqlite" and (not text.startswith("sqlite:///") or parts.path in ("/", "/:memory:")):
        raise ValueError('not a SQLite URL that names a file, as "sqlite:///gateway.db"')
    return text


def networks(text: str) -> str:
    """Networks in CIDR notation, separated by commas, or none."""
    try:
        hops.networks(text)
    except ValueError:
        raise ValueError('not networks such as "10.0.0.0/8, 2001:db8::/32", or everybody is in them') from None
    return text


def redis_url(text: str) -> str:
    """A Redis URL, or nothing."""
    if text and _split(text).scheme not in ("redis", "rediss", "unix"):
        raise ValueError("not a redis:, rediss: or unix: URL")
    return text


def directory(text: str) -> str:
    """The path of a directory, or nothing."""
    if "\0" in text or len(text) > 4096:  # PATH_MAX of Linux
        raise ValueError("not a path")
    return text


def _split(text: str) -> SplitResult:
    if _HEADER_SAFE.fullmatch(text) is None:
        raise ValueError("not a URL: it is empty or has characters that no URL has")
    try:
        parts = urlsplit(text)
        _ = parts.port  # the only part that urlsplit checks late
    except ValueError:
        raise ValueError("not a URL") from None
    return parts


def without_password(url: str) -> str:
    """*url* as it stands in the file, with user, password and query hidden."""
    return f'"{_PASSWORD.sub("***@", url).partition("?")[0]}"'


def label(text: str) -> str:
    """A name for logs and metrics."""
    return _match(LABEL, text, NO_LABEL)


def slug(text: str) -> str:
    """A model's name, as clients send it and as it stands in URLs."""
    return _match(SLUG, text, "not a name of at most 128 letters, digits and . _ : @ / -")


def region(text: str) -> str:
    """A region's short name."""
    return _match(_REGION, text, "not a region of at most 32 letters, digits and dashes")


def aws_region(text: str) -> str:
    """A region of Amazon's cloud; it goes into a host name."""
    return _match(_AWS_REGION, text, 'not an AWS region, such as "ap-southeast-3"')


def host(text: str) -> str:
    """A host name or address."""
    return _match(_HOST, text, "not a host name or address")


def provider_model(text: str) -> str:
    """A provider's own name of a model; it goes into a JSON body, so nearly everything is allowed."""
    if not text or len(text) > 256 or not text.isprintable():
        raise ValueError("not a model's name of 1 to 256 printable characters")
    return text


def gateway_key(text: str) -> Secret:
    """A key that clients of the gateway send."""
    return Secret(_match(_GATEWAY_KEY, text, 'not "anm-sk-" and 1 to 256 letters, digits and . _ ~ + / = -'))


def credential(text: str) -> Secret:
    """A provider's key; it becomes a header."""
    return Secret(_match(_HEADER_SAFE, text, "empty, or has blanks or characters that a header cannot hold"))


def day(text: str) -> datetime.date:
    """A calendar day."""
    try:
        return datetime.datetime.strptime(text, "%Y-%m-%d").date()  # `fromisoformat` would also take "2026-W11-5"
    except ValueError:
        raise ValueError('not a day such as "2026-03-13"') from None


def some(items: tuple[str, ...]) -> tuple[str, ...]:
    """A list that says something, once."""
    if not items:
        raise ValueError("empty")
    if len(set(items)) < len(items):
        raise ValueError("a list with an entry twice")
    return items


def kinds(items: tuple[str, ...]) -> tuple[str, ...]:
    """Kinds of findings, at least one."""
    for item in items:
        _match(_KIND, item, 'not a list of kinds such as "email"')
    return some(items)


def models(items: tuple[str, ...]) -> tuple[str, ...]:
    """Models' names, or the beginnings of such: each is held against every model when models are listed."""
    if len(items) > MAX_MODELS:
        raise ValueError(f"a list of more than {MAX_MODELS} models")
    for item in items:
        _match(MODEL, item, "not a list of models' names, with * at the end of one for any rest")
    return some(items)


def regions(items: tuple[str, ...]) -> tuple[str, ...]:
    """Regions, at least one, in the spelling that they are compared in."""
    return some(tuple([region(item).upper() for item in items]))


def glob(text: str) -> str:
    """What names or values are matched with."""
    if not text or len(text) > MAX_GLOB_CHARS or not text.isprintable():
        raise ValueError(f"not a glob of 1 to {MAX_GLOB_CHARS} printable characters")
    return text


def globs(items: tuple[str, ...]) -> tuple[str, ...]:
    """Some globs."""
    if len(items) > MAX_GLOBS:
        raise ValueError(f"a list of more than {MAX_GLOBS} globs")
    for item in items:
        glob(item)
    return some(items)


def path(text: str) -> str:
    """Where a value is found in an object."""
    if len(text) > MAX_GLOB_CHARS or not text.isprintable() or not all(text.split(".")):
        raise ValueError('not a path such as "order.amount" or "files.*"')
    return text


def finite(number: float) -> float:
    """A number that others can be compared with."""
    if not isfinite(number):
        raise ValueError("not a number that others can be compared with")
    return number


def _match(pattern: re.Pattern[str], text: str, problem: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError(problem)
    return text
