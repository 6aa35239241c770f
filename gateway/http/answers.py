"""Whole JSON answers, rendered in one piece."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http_writer import StreamWriter

from gateway.core.exchange import Answer
from gateway.http.answer_headers import SERVER_NAME

_REASONS = {status.value: status.phrase for status in HTTPStatus}


class JsonAnswer(web.StreamResponse):
    """
    The JSON answer to a POST: head and body leave in one write.

    The framework's own response builds, checks and serialises a header map, which costs an eighth of what a request
    without streaming costs at all. Here the head is text from the start. Names and values are ours or came through
    `header_value`, so there is nothing in them that could end a line.
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
        self._stays = request.keep_alive and not request.protocol._close and request.content.is_eof()
        self._writer = request._payload_writer
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Write head and body."""
        writer, answer, body = self._writer, self._answer, self._answer.body
        assert isinstance(writer, StreamWriter)
        lines = "".join([f"{name}: {value}\r\n" for name, value in answer.headers])
        head = (
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: application/json\r\n{lines}"
            f"Content-Length: {len(body)}\r\nDate: {rfc822_formatted_time()}\r\nServer: {SERVER_NAME}\r\n"
            f"Connection: {'keep-alive' if self._stays else 'close'}\r\n\r\n"
        )
        await writer.write(head.encode("ascii") + body)
        await writer.write_eof()
        # The framework waits only for large answers; many small ones pile up as well. The protocol has the deadline.
        if writer.protocol.writing_paused:
            await writer.drain()
