"""A real `GatewayServer` on a loopback port, with a handler that does what comes before the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec
from aiohttp import web

from gateway.core.errors import INVALID_API_KEY, GatewayError
from gateway.http.intake import check_request, credential, read_body, route_path
from gateway.http.server import GatewayServer, ServerLimits
from gateway.http.turnstile import Turnstile
from tests.support.http1 import Head, cut_head

SMALL_BYTES = 64 * 1024
LARGE_BYTES = 256 * 1024

# Short enough for a test to wait for, each distinct from the others.
QUICK = ServerLimits(first_byte_s=0.2, header_s=0.3, keepalive_s=0.5, lingering_s=0.2)
BODY_S = 0.4

CANARY = "anm-sk-canary-1f0c9a7e"
_DIGEST = sha256(CANARY.encode()).digest()

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole HTTP answer."""

    head: Head
    body: bytes

    @property
    def status(self) -> int:
        return self.head.status

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The error code, in either envelope."""
        return str(self.json["error"]["code"])

    def header(self, name: str) -> str | None:
        return self.head.headers.get(name)


def replies(data: bytes, *, bodiless: bool = False) -> list[Reply]:
    """Every answer in *data*, interim ones too; all of ours have a length. *bodiless*: the request was HEAD."""
    rest = bytearray(data)
    found: list[Reply] = []
    while rest:
        head = cut_head(rest)
        assert head is not None, f"half a head: {bytes(rest)!r}"
        length = 0 if bodiless or head.status < 200 else int(head.headers.get("content-length") or 0)
        assert len(rest) >= length, "half a body"
        found.append(Reply(head, bytes(rest[:length])))
        del rest[:length]
    return found


@dataclass(slots=True)
class Door:
    """The server and what it reported. `logged` holds every record any logger emitted meanwhile, formatted."""

    server: GatewayServer
    port: int
    refused: list[tuple[str, int]]
    crashes: list[tuple[str, BaseException]]
    logged: list[str] = field(default_factory=list)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def raw(self, data: bytes, within_s: float = 5.0) -> bytes:
        """Send *data*, then read until the server closes; a reset counts as a close."""
        reader, writer = await self.connect()
        got = bytearray()
        try:
            async with asyncio.timeout(within_s):
                writer.write(data)
                while piece := await reader.read(65536):
                    got += piece
        except ConnectionError:
            pass
        finally:
            await hang_up(writer)
        return bytes(got)

    async def ask(self, data: bytes, within_s: float = 5.0) -> Reply:
        """The one answer to *data*."""
        (reply,) = replies(await self.raw(data, within_s), bodiless=data.startswith(b"HEAD "))
        return reply


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close *writer* and wait for it."""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def all_gone(connections: Callable[[], Sized]) -> None:
    """Wait until the server has noticed that every one of *connections* is over.

    Raises:
        TimeoutError: Some are left after a second.
    """
    async with asyncio.timeout(1):
        while connections():  # noqa: ASYNC110 - the server tells nobody; a turn of the loop is the event
            await asyncio.sleep(0)


async def polite(request: web.BaseRequest) -> web.StreamResponse:
    """Checks, authenticates, reads, and answers with what it read: the order of the gateway's own handler."""
    check_request(request)
    key = credential(request)
    if key is None or sha256(key.encode()).digest() != _DIGEST:
        raise GatewayError(INVALID_API_KEY)
    body = await read_body(request, small_bytes=SMALL_BYTES, large_bytes=LARGE_BYTES, body_s=BODY_S)
    return web.json_response({"path": route_path(request), "bytes": len(body)})


@contextlib.asynccontextmanager
async def open_door(handler: Handler = polite, limits: ServerLimits = QUICK, **changes: Any) -> AsyncIterator[Door]:
    """Serve *handler*; *changes* are limits that differ from *limits*."""
    refused: list[tuple[str, int]] = []
    crashes: list[tuple[str, BaseException]] = []
    ids = (f"req_{number}" for number in itertools.count(1))
    server = GatewayServer(
        handler,
        dataclasses.replace(limits, **changes),
        Turnstile(time.monotonic),
        on_bad_request=lambda reason, status, request_id: refused.append((reason, status)),
        on_crash=lambda request_id, error: crashes.append((request_id, error)),
        new_request_id=lambda: next(ids),
    )
    # asyncio's backlog of 100 overflows when hundreds of clients come at once: silent ones then wait for seconds.
    listener = await asyncio.get_running_loop().create_server(server, "127.0.0.1", 0, backlog=1024)
    door = Door(server, listener.sockets[0].getsockname()[1], refused, crashes)
    with _listening(door.logged):
        try:
            yield door
        finally:
            listener.close()
            server.pre_shutdown()
            await server.shutdown(1.0)


@contextlib.contextmanager
def _listening(lines: list[str]) -> Any:
    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    root, ear = logging.getLogger(), Ear()
    level = root.level
    root.addHandler(ear)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(ear)


def request(
    target: str = "/v1/chat/completions", *headers: str, method: str = "POST", body: bytes = b"{}", key: str = CANARY
) -> bytes:
    """A well-formed request with the canary credential; *headers* are whole lines that come last."""
    lines = [f"{method} {target} HTTP/1.1", "Host: gateway.test", f"Authorization: Bearer {key}", *headers]
    if body and not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
