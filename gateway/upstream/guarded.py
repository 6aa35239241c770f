"""A client for URLs that come from a caller: it reaches public addresses only (hazards H19, reliability E8).

Whatever fetches such URLs, as images are, has to do it with this.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from gateway.core.errors import FetchFailed, FetchReason
from gateway.upstream.addresses import is_public
from gateway.upstream.client import HEADERS
from gateway.upstream.connection import Connector
from gateway.upstream.dns import Lookup, Resolver, system_lookup

HTTPS_ONLY = frozenset({"https"})
MAX_FETCHES = 32  # at once, so that callers cannot make us hold any number of sockets
MAX_URL_CHARS = 8192  # longer than any server takes in a request line


class GuardedClient:
    """Fetches what a caller points at. To be made inside the running loop.

    Every address is judged when its socket is made, after the last look-up: a name that changes its address between
    check and use gains nothing. Connections are not kept.

    Args:
        schemes: Which URL schemes are taken.
        is_allowed: Judges an address in the form that `connect` gets.
        dns_s: Deadline of a look-up.
    """

    def __init__(
        self,
        *,
        schemes: frozenset[str] = HTTPS_ONLY,
        is_allowed: Callable[[str], bool] = is_public,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = system_lookup,
        dns_s: float = 2.0,
    ) -> None:
        self._schemes = schemes
        self._is_allowed = is_allowed
        self._resolver = Resolver(lookup, deadline_s=dns_s)
        self._session = ClientSession(
            connector=Connector(
                limit=MAX_FETCHES,
                force_close=True,
                use_dns_cache=False,
                resolver=self._resolver,
                socket_factory=self._socket,
                ssl=tls or True,
            ),
            headers=HEADERS,
            cookie_jar=DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=32768,  # unread data we hold per fetch: twice this
        )

    async def fetch(self, url: str, *, max_bytes: int, timeout_s: float) -> tuple[str, bytes]:
        """
        The content type (lower case, without parameters) and the body of *url*.

        Args:
            max_bytes: A longer body is refused, by its announced length or by what comes.
            timeout_s: For everything from the look-up to the last byte.

        Raises:
            FetchFailed: Anything but a plain 200 from a public address.
        """
        target = self._checked(url)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.get(target, allow_redirects=False, timeout=ClientTimeout(total=None)) as response,
            ):
                return await _body(response, max_bytes)
        except TimeoutError as exc:
            raise FetchFailed("timeout") from exc
        except ClientError as exc:
            raise FetchFailed(_reason(exc), type(exc).__name__) from exc

    async def close(self) -> None:
        """Drop every connection."""
        await self._session.close()
        await self._resolver.close()

    def _checked(self, url: str) -> URL:
        try:
            target = URL(url) if len(url) <= MAX_URL_CHARS else None
        except ValueError as exc:
            raise FetchFailed("url") from exc
        if target is None or not target.raw_host:
            raise FetchFailed("url")
        if target.scheme not in self._schemes:
            raise FetchFailed("scheme")
        if target.raw_user is not None or target.raw_password is not None:
            raise FetchFailed("credentials")
        return target

    def _socket(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._is_allowed(address[0]):
            raise PermissionError(errno.EACCES, "the address is not public")
        return socket.socket(family, kind, protocol)


async def _body(response: ClientResponse, max_bytes: int) -> tuple[str, bytes]:
    if response.status != 200:
        raise FetchFailed("status", str(response.status))
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise FetchFailed("encoding")
    if (response.content_length or 0) > max_bytes:
        raise FetchFailed("too_large")
    body = bytearray()
    while data := await response.content.readany():
        body += data
        if len(body) > max_bytes:
            raise FetchFailed("too_large")
    content_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return content_type, bytes(body)


def _reason(exc: ClientError) -> FetchReason:
    if isinstance(exc, ValueError):  # InvalidURL: also numeric hosts that are no canonical IPv4 address
        return "url"
    if isinstance(exc, OSError) and getattr(exc, "os_error", exc).errno == errno.EACCES:
        return "blocked"
    return "unreachable"
