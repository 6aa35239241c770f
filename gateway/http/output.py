"""The way out for answers: heads are text, since what is known to be right need not be built and checked anew."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import web
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.web_protocol import RequestHandler

from gateway.http.answer_headers import SERVER_NAME, Headers

_REASONS = {status.value: status.phrase for status in HTTPStatus}


def head(status: int, fixed: str, headers: Headers, *, stays: bool) -> bytes:
    """
    Status line and headers, the empty line included.

    Args:
        fixed: Header lines, each with its line end.
        headers: Further ones. They are ours or came through `header_value`, so nothing in them could end a line.
        stays: Whether the connection serves another request.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    return (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\n{fixed}{lines}Date: {rfc822_formatted_time()}\r\n"
        f"Server: {SERVER_NAME}\r\nConnection: {'keep-alive' if stays else 'close'}\r\n\r\n"
    ).encode("ascii")


def may_stay(request: web.BaseRequest) -> bool:
    """Whether the connection can serve another request when *request* is answered."""
    return bool(request.keep_alive) and not request.protocol._close and request.content.is_eof()


def begin(request: web.BaseRequest, data: bytes) -> None:
    """Send *data*, the first bytes of the answer to *request*.

    Raises:
        ConnectionResetError: The client is gone.
    """
    send(request.protocol, data)
    request.writer.output_size += len(data)  # what tells the server that an answer has begun


def send(protocol: RequestHandler, data: bytes) -> None:
    """Send *data* without waiting for a slow client. Raises ConnectionResetError when it is gone."""
    transport = protocol.transport
    if transport is None or transport.is_closing():
        raise ConnectionResetError("the client is gone")
    transport.write(data)
