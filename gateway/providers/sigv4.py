"""AWS Signature Version 4, in the header form, for services other than S3. Pure: whoever sends owns the clock.

By AWS's guide, "Create a signed AWS API request". A request is signed with a key that is derived from the secret one
for a day, a region and a service; what is signed names method, path, headers and the digest of the body.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "/-._~"  # besides letters and digits: what the path keeps as it is (RFC 3986, 2.3)
_DEFAULT_PORTS = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Credential:
    """Who signs. A session token belongs to keys that are good for some hours only."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class Message(NamedTuple):
    """What is signed: a request without a query, with its path as it is sent and all of *headers*.

    The digest of its body is in hexadecimal digits: of megabytes it takes a while, so it is for whoever sends to make.
    """

    method: str
    path: str
    headers: Headers
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs the POST requests of one account to one service in one region."""

    credential: Credential
    region: str
    service: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What nobody may be shown."""
        credential = self.credential
        return tuple(filter(None, (credential.access_key_id, credential.secret_access_key, credential.session_token)))

    def __call__(self, url: str, headers: Headers, body_sha256: str, epoch_s: float) -> Headers:
        """
        The headers to be added to a request that is sent at *epoch_s*; AWS takes them for five minutes.

        Args:
            url: As it is sent, in ASCII and without a query.
            headers: Those of the request. Of them the content type is signed: others may change on the way.
        """
        parts = urlsplit(url)
        own: Headers = (("X-Amz-Date", timestamp(epoch_s)),)
        if self.credential.session_token is not None:
            own += (("X-Amz-Security-Token", self.credential.session_token),)
        signed = (("host", _host(parts.scheme, parts.netloc)), *own, *_content_type(headers))
        return (*own, ("Authorization", self.authorization(Message("POST", parts.path, signed, body_sha256))))

    def authorization(self, message: Message) -> str:
        """The value of the `Authorization` header for *message*, one of whose headers has to be `X-Amz-Date`."""
        headers = canonical_headers(message.headers)
        names = ";".join(headers)
        date_time = headers["x-amz-date"]
        scope = f"{date_time[:8]}/{self.region}/{self.service}/aws4_request"
        digest = sha256(_canonical(message, headers, names).encode()).hexdigest()
        signature = hmac.new(self._key(date_time[:8]), f"{ALGORITHM}\n{date_time}\n{scope}\n{digest}".encode(), sha256)
        credential = f"{self.credential.access_key_id}/{scope}"
        return f"{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature.hexdigest()}"

    def _key(self, day: str) -> bytes:
        key = f"AWS4{self.credential.secret_access_key}".encode()
        for part in (day, self.region, self.service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key


def timestamp(epoch_s: float) -> str:
    """As in `20150830T123600Z`."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def canonical_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """By name in lower case and in its order; values of one name are joined, blanks in them are one each."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(" ".join(value.split()))
    return {name: ",".join(values[name]) for name in sorted(values)}


def _canonical(message: Message, headers: dict[str, str], names: str) -> str:
    """
    The canonical request. Its empty line stands for the query.

    The path is quoted once more than it is sent, as every service but S3 has it: `%3A` becomes `%253A`.
    """
    lines = "".join([f"{name}:{value}\n" for name, value in headers.items()])
    path = quote(message.path or "/", safe=_UNRESERVED)
    return f"{message.method}\n{path}\n\n{lines}\n{names}\n{message.body_sha256}"


def _content_type(headers: Headers) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() == "content-type")


def _host(scheme: str, netloc: str) -> str:
    """The `Host` header that goes with a URL: a port is in it unless it is the scheme's own."""
    return netloc.lower().removesuffix(f":{_DEFAULT_PORTS.get(scheme)}")
