"""The port `Upstream` on aiohttp's client session. Nothing of aiohttp leaves this package."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from yarl import URL

from gateway import __version__
from gateway.core.call import UpstreamRequest
from gateway.core.errors import Failure, UpstreamFailed
from gateway.upstream.answer import AiohttpAnswer, DecodedAnswer
from gateway.upstream.connection import Connector, RequestBody
from gateway.upstream.decoding import IDENTITY, SUPPORTED, Inflater
from gateway.upstream.dns import Lookup, Resolver, system_lookup
from gateway.upstream.faults import LIBRARY_ERRORS, encoding_failure, failure_of

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
    read_buffer_bytes: int = 32768
    linger_s: float = 0.05
    max_header_bytes: int = 8190
    max_headers: int = 128


class AiohttpUpstream:
    """The way to providers, with one pool of connections. To be made inside the running loop.

    There is no deadline on answers here: the pipeline owns those.

    Args:
        tls: Replaces the system's trust store, as for a private certificate authority.
        lookup: Replaces the system's name look-up.
    """

    def __init__(
        self, limits: UpstreamLimits, *, tls: ssl.SSLContext | None = None, lookup: Lookup = system_lookup
    ) -> None:
        self._linger_s = limits.linger_s
        self._lingering: set[AiohttpAnswer] = set()
        self._resolver = Resolver(lookup, deadline_s=limits.dns_s)
        self._session = ClientSession(
            connector=Connector(
                limit=0,
                limit_per_host=limits.max_connections,
                keepalive_timeout=limits.pool_idle_s,
                ttl_dns_cache=DNS_CACHE_S,
                resolver=self._resolver,
                ssl=tls or True,
            ),
            headers=HEADERS,
            timeout=_timeout(limits),
            cookie_jar=_NoCookies(),
            trust_env=False,
            auto_decompress=False,
            read_bufsize=limits.read_buffer_bytes,
            max_line_size=limits.max_header_bytes,
            max_field_size=limits.max_header_bytes,
            max_headers=limits.max_headers,
        )

    async def open(self, request: UpstreamRequest, on_sent: Callable[[], None] = lambda: None) -> AiohttpAnswer:
        """
        Send *request* and wait for the head of the answer, any status but 1xx. Redirects are not followed.

        Args:
            on_sent: Called when the whole request is on its way.

        Raises:
            UpstreamFailed: No head came, or one that announces an encoding we do not know.
        """
        try:
            body = RequestBody(request.body, on_sent)
            response = await self._session.post(
                _url(request.url), data=body, headers=request.headers, allow_redirects=False
            )
        except LIBRARY_ERRORS as exc:
            raise UpstreamFailed(failure_of(exc)) from exc
        encoding = response.headers.get("Content-Encoding")
        if encoding is None and response.status >= 200 and _was_asked(response):
            return AiohttpAnswer(response, self._linger_s, self._lingering)
        return self._odd(response, (encoding or "").strip().lower())

    async def close(self) -> None:
        """Drop every connection, also those of open answers."""
        for answer in tuple(self._lingering):
            answer.close()
        await self._session.close()
        await self._resolver.close()

    def _odd(self, response: ClientResponse, encoding: str) -> AiohttpAnswer:
        if response.status < 200:
            failure = Failure("upstream_error", "protocol", detail=f"status {response.status}")
        elif not _was_asked(response):
            failure = Failure("upstream_error", "protocol", detail="an answer before the request")
        elif encoding in IDENTITY:
            return AiohttpAnswer(response, self._linger_s, self._lingering)
        elif encoding in SUPPORTED:
            return DecodedAnswer(response, self._linger_s, self._lingering, Inflater(encoding))
        else:
            failure = encoding_failure("encoding", f"Content-Encoding: {encoding[:100]}")
        response.close()
        raise UpstreamFailed(failure)


def _timeout(limits: UpstreamLimits) -> ClientTimeout:
    """
    The limit on connecting, TLS included; names have their own in `Resolver`.

    The library's `connect` would also bound the wait for a free connection, but it sets a timer for every request, also
    for one that finds a connection in the pool. So it is used only where there can be such a wait.
    """
    wait_s = limits.connect_s if limits.max_connections else None
    return ClientTimeout(total=None, connect=wait_s, sock_connect=limits.connect_s)


class _NoCookies(DummyCookieJar):
    """One tenant's answer must not colour another's request; aiohttp's own dummy still parses every cookie."""

    def update_cookies_from_headers(self, headers: object, response_url: URL) -> None:
        pass


def _was_asked(response: ClientResponse) -> bool:
    """Whether any byte of the request was out. If not, the answer is a stray one, perhaps to somebody else's request.

    aiohttp would hand it over, and pool the connection, its writing task cancelled before the first step.
    """
    writer = response._stream_writer
    return (response._output_size if writer is None else writer.output_size) > 0


@lru_cache(maxsize=MAX_URLS)
def _url(url: str) -> URL:
    """Parsed once, and sent as written: aiohttp caches what it derives from a URL on the object."""
    return URL(url, encoded=True)
