"""Whole JSON answers, rendered in one piece."""

from __future__ import annotations

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter

from gateway.core.exchange import Answer
from gateway.http.heads import head, may_stay


class JsonAnswer(web.StreamResponse):
    """
    The JSON answer to a POST: head and body leave in one write.

    The framework's own response builds, checks and serialises a header map, which costs an eighth of what a request
    without streaming costs at all.
    """

    def __init__(self, answer: Answer) -> None:
        # The base class is deliberately not initialised: nothing of it is used but its type.
        self._answer = answer
        self._writer: AbstractStreamWriter | None = None
        self._stays = True

    @property
    def prepared(self) -> bool:
        """Whether the head is out."""
        return self._writer is not None

    @property
    def keep_alive(self) -> bool:
        """Whether the connection serves another request."""
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Decide on the connection's future; nothing is written yet."""
        self._stays = may_stay(request)
        self._writer = request._payload_writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Write head and body."""
        writer, answer, body = self._writer, self._answer, self._answer.body
        assert isinstance(writer, StreamWriter)
        fixed = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        await writer.write(head(answer.status, fixed, answer.headers, stays=self._stays) + body)
        await writer.write_eof()
        # The framework waits only for large answers; many small ones pile up as well. The protocol has the deadline.
        if writer.protocol.writing_paused:
            await writer.drain()
