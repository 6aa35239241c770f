"""The port `Upstream` on aiohttp's connections and its parser. Nothing of aiohttp leaves this package.

Between the two, aiohttp's client session builds a request object, a response object and a writing task each time; they
would cost more than everything else here.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from weakref import ref

from aiohttp import ClientRequest
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from gateway import __version__
from gateway.aio import Tasks
from gateway.core.call import UpstreamRequest
from gateway.upstream.answer import Lingering
from gateway.upstream.asking import Asking
from gateway.upstream.connection import Connector, Wire
from gateway.upstream.dns import Lookup, Resolver, system_lookup
from gateway.upstream.faults import LIBRARY_ERRORS
from gateway.upstream.heads import Heads
from gateway.upstream.shelf import Shelf

DNS_CACHE_S = 10  # aiohttp's own default: providers move their traffic by DNS
MAX_URLS = 512  # a deployment has some dozen: one per provider, or one per model where the path names it

HEADERS = {"User-Agent": f"anoman-gateway/{__version__}", "Accept-Encoding": "identity"}


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """What a provider may cost us before and beside the body.

    Attributes:
        connect_s: Waiting for a free connection, DNS, TCP and the TLS handshake together.
        dns_s: The look-up alone.
        max_connections: At once, to one provider (scheme, host and port); 0 means no limit.
        pool_idle_s: An idle connection is dropped after this; providers keep theirs 60 s and longer.
        read_buffer_bytes: Reading is paused at twice this much unread body.
        linger_s: How long a released answer may take to end its body.
        max_header_bytes: Of the status line, and of each header.
        max_headers: In one head.
    """

    connect_s: float = 3.0
    dns_s: float = 2.0
    max_connections: int = 0
    pool_idle_s: float = 15.0
    read_buffer_bytes: int = 16_384
    linger_s: float = 0.05
    max_header_bytes: int = 8190
    max_headers: int = 128


class AiohttpUpstream:
    """The way to providers, with a shelf of resting connections for each. To be made inside the running loop.

    There is no deadline on answers here: the pipeline owns those.

    Args:
        tasks: Where connections are made, so that nobody has to wait for one that is given up.
        tls: Replaces the system's trust store, as for a private certificate authority.
        lookup: Replaces the system's name look-up.
    """

    def __init__(
        self,
        limits: UpstreamLimits,
        tasks: Tasks,
        *,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = system_lookup,
    ) -> None:
        self._tasks = tasks
        self._lingering = Lingering(limits.linger_s)
        self._resolver = Resolver(lookup, deadline_s=limits.dns_s)
        self._connect_s = limits.connect_s
        self._connector = Connector(
            _parsing(limits),
            limit=0,
            limit_per_host=limits.max_connections,
            keepalive_timeout=limits.pool_idle_s,
            ttl_dns_cache=DNS_CACHE_S,
            resolver=self._resolver,
            ssl=tls or True,
        )
        self._idle_s = limits.pool_idle_s
        self._shelves: dict[ConnectionKey, Shelf] = {}
        self._target = lru_cache(maxsize=MAX_URLS)(self._read_target)
        self._heads = Heads()

    def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> Asking:
        """
        Send *request*: at once over a connection that rests, or as soon as a new one stands.

        Redirects are not followed.

        Args:
            on_sent: Called as the last of the request leaves.
        """
        target = self._target(request.url)
        shelf = target.shelf
        asking = Asking(self._heads.head(target.lines, request), request.body, on_sent, shelf, self._lingering)
        if request.fresh:
            shelf.clear()  # one of them was dead, and they are of an age
        connection = shelf.take()
        if connection is not None:
            asking.send(connection)
        else:
            connecting = self._connect(target, ref(asking), usable=Wire.is_new if request.fresh else Wire.is_fit)
            asking.connects_by(self._tasks.spawn(connecting, name="upstream.connect"))
        return asking

    def forget(self) -> None:
        """Keep nothing that was sent: credentials of old settings are among it."""
        self._heads.forget()

    async def close(self) -> None:
        """Drop every connection, also those of open answers."""
        self._lingering.close()
        for shelf in self._shelves.values():
            shelf.clear()
        await self._connector.close()
        await self._resolver.close()

    def _read_target(self, url: str) -> _Target:
        request = ClientRequest("POST", URL(url, encoded=True), loop=asyncio.get_running_loop())
        key = request.connection_key
        shelf = self._shelves.get(key)
        if shelf is None:
            shelf = self._shelves[key] = Shelf(self._connector, key, self._idle_s)
        own = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        lines = f"POST {request.url.raw_path_qs} HTTP/1.1\r\nHost: {request.headers['Host']}\r\n{own}"
        return _Target(request, shelf, lines)

    async def _connect(self, target: _Target, asked: ref[Asking], usable: Callable[[Wire], bool]) -> None:
        """No more than a reference that is weak: the library keeps tracebacks, and with them this frame."""
        try:
            connection = await self._connector.dial(target.request, usable, self._connect_s)
        except LIBRARY_ERRORS as exc:
            if (asking := asked()) is not None:
                asking.fail(exc)
            del asking
        else:
            if (asking := asked()) is not None:
                asking.send(connection)
            else:
                connection.close()


@dataclass(frozen=True, slots=True)
class _Target:
    """What is the same for every request to one URL.

    Attributes:
        request: What the library wants to know of it to connect; never sent.
        shelf: The connections that rest.
        lines: The first lines of a head.
    """

    request: ClientRequest
    shelf: Shelf
    lines: str


def _parsing(limits: UpstreamLimits) -> Mapping[str, int]:
    return {
        "read_bufsize": limits.read_buffer_bytes,
        "max_line_size": limits.max_header_bytes,
        "max_field_size": limits.max_header_bytes,
        "max_headers": limits.max_headers,
    }
