"""Turning a connection away: a 503 in the caller's envelope without the cost of a request handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from gateway.core.errors import OVERLOADED, GatewayError
from gateway.http.errors import error_response
from gateway.http.output import head
from gateway.http.refusals import peeked_path

if TYPE_CHECKING:
    from gateway.http.server import GatewayServer

# Turned-away clients that may be waiting for their 503 at once. Beyond it they are dropped unanswered: a flood must not
# cost more descriptors than the limit it runs into.
MAX_TURNED_AWAY = 64


class TurnedAway(asyncio.Protocol):
    """One connection over the limit: answers the first bytes of its request, then drops it.

    The answer waits for the request because a close with unread bytes is a reset, which would take the 503 with it.
    """

    __slots__ = ("_answered", "_server", "_timer", "_transport")

    def __init__(self, server: GatewayServer, transport: asyncio.Transport) -> None:
        self._server = server
        self._transport = transport
        self._answered = False
        self._timer = asyncio.get_running_loop().call_later(server.limits.lingering_s, transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._answered = True
        request_id = self._server.new_request_id()
        response = error_response(peeked_path(data), GatewayError(OVERLOADED), request_id)
        body = response.body if isinstance(response.body, bytes) else b""
        self._transport.write(_head_of(response, body) + (b"" if data.startswith(b"HEAD ") else body))
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._server.on_bad_request("too_many_connections", OVERLOADED.status, request_id)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._server.turned_away.discard(self)

    def abort(self) -> None:
        """Drop the connection now."""
        self._transport.abort()


def _head_of(response: web.Response, body: bytes) -> bytes:
    return head(response.status, f"Content-Length: {len(body)}\r\n", tuple(response.headers.items()), stays=False)
