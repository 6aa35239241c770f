"""A bare HTTP/1.1 client connection: enough to load a proxy with several times what it can do, and no more."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Literal, Protocol

from . import frames
from .frames import Script

DialectName = Literal["openai", "anthropic"]
API_KEY = "anm-sk-bench"
MODELS: dict[DialectName, str] = {"openai": "bench-chat", "anthropic": "bench-messages"}
# The same for the gateway, but that the provider speaks the other dialect. A proxy passes either on as it is.
ABROAD: dict[DialectName, str] = {"openai": "bench-chat-abroad", "anthropic": "bench-messages-abroad"}
PATHS: dict[DialectName, str] = {"openai": "/v1/chat/completions", "anthropic": "/anthropic/v1/messages"}
_FILLER_BYTES = 810  # brings a request's body to 1 KB
_LINGER_ZERO = struct.pack("ii", 1, 0)  # close() sends RST instead of FIN


def request(port: int, dialect: DialectName, script: Script, *, stream: bool, model: str = "") -> bytes:
    """A whole request with a body of about 1 KB, for *model* or the native one of *dialect*."""
    filler = ("You answer in one short sentence. " * 40)[:_FILLER_BYTES]
    body: dict[str, object] = {"model": model or MODELS[dialect], "temperature": 0.2, "max_tokens": 512}
    user = {"role": "user", "content": f"{script.marker()} Say something."}
    if dialect == "openai":
        body["messages"] = [{"role": "system", "content": filler}, user]
        credential = f"Authorization: Bearer {API_KEY}"
    else:
        body |= {"system": filler, "messages": [user]}
        credential = f"x-api-key: {API_KEY}\r\nanthropic-version: 2023-06-01"
    if stream:
        body["stream"] = True
        if dialect == "openai":
            body["stream_options"] = {"include_usage": True}
    payload = json.dumps(body, separators=(",", ":")).encode()
    head = (
        f"POST {PATHS[dialect]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        f"Content-Type: application/json\r\n{credential}\r\nContent-Length: {len(payload)}\r\n\r\n"
    )
    return head.encode() + payload


class Reply(Protocol):
    """Who waits for an answer."""

    def payload(self, data: bytes) -> None:
        """A piece of the body, transfer coding removed."""

    def ended(self, status: int) -> None:
        """The answer is complete; the connection is free."""

    def lost(self) -> None:
        """The connection ended inside an answer."""


class Channel(asyncio.Protocol):
    """One keep-alive connection; one answer at a time, by Content-Length or chunked.

    Attributes:
        alive: Connected and usable for another request.
        closed_ns: When close() was called on the socket, as far as this side can tell.
    """

    def __init__(self) -> None:
        self.alive = False
        self.closed_ns = 0
        self._reply: Reply | None = None
        self._transport: asyncio.Transport
        self._buffer = b""
        self._status = 0
        self._chunked = False
        self._left = 0  # bytes of body or of the current chunk, with a chunk's CRLF

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = transport  # type: ignore[assignment]  # create_connection makes stream transports
        self.alive = True

    def send(self, data: bytes, reply: Reply) -> None:
        """Write a request; *reply* hears of the answer."""
        self._reply, self._status = reply, 0
        self._transport.write(data)

    def drop(self, how: Literal["fin", "rst"]) -> None:
        """Leave; the answer, if one is due, is not wanted any more."""
        self._reply = None
        if how == "rst":
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The loop calls this right before it closes the socket."""
        self.closed_ns = time.monotonic_ns()
        self.alive = False
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.lost()

    def data_received(self, data: bytes) -> None:
        """Take the answer apart."""
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        at = 0
        if not self._status:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                return
            self._head(data[:end].lower())
            at = end + 4
        if self._chunked:
            self._take_chunks(data, at)
        else:
            self._take_body(data, at)

    def _head(self, head: bytes) -> None:
        self._status = int(head[9:12])
        self._chunked = b"transfer-encoding: chunked" in head
        _, found, rest = head.partition(b"content-length:")
        self._left = int(rest.split(b"\r\n", 1)[0]) if found and not self._chunked else 0

    def _take_body(self, data: bytes, at: int) -> None:
        self._left -= len(data) - at
        if self._reply is not None and len(data) > at:
            self._reply.payload(data[at:])
        if self._left <= 0:
            self._end()

    def _take_chunks(self, data: bytes, at: int) -> None:
        pieces: list[bytes] = []
        size, ended = len(data), False
        while at < size:
            if self._left:
                stop = at + self._left
                pieces.append(data[at : min(stop - 2, size)] if self._left > 2 else b"")
                self._left = max(0, stop - size)
                at = min(stop, size)
                continue
            line = data.find(b"\r\n", at)
            length = int(data[at:line].split(b";", 1)[0], 16) if line >= 0 else -1
            if length < 0 or (length == 0 and size < line + 4):
                self._buffer = data[at:]
                break
            if length == 0:
                ended = True
                break
            self._left, at = length + 2, line + 2
        if pieces and self._reply is not None:
            self._reply.payload(b"".join(pieces))
        if ended:
            self._end()

    def _end(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.ended(self._status)


async def connect(port: int) -> Channel:
    """A connection to a proxy on loopback. Raises OSError."""
    _, channel = await asyncio.get_running_loop().create_connection(Channel, "127.0.0.1", port)
    return channel


@dataclass(slots=True)
class FrameCounter:
    """Counts a stream's frames, whole ones only, however they are cut.

    Attributes:
        stamps: Sending times of the content frames of the last piece, in nanoseconds.
        content: Content frames so far.
        terminated: `[DONE]` or `message_stop` was seen.
    """

    stamps: list[int] = field(default_factory=list)
    content: int = 0
    terminated: bool = False
    _tail: bytes = b""

    def feed(self, data: bytes) -> int:
        """Take a piece of body; the number of content frames it completed."""
        if self._tail:
            data = self._tail + data
        end = data.rfind(b"\n\n") + 2
        if end < 2:
            self._tail = data
            return 0
        whole, self._tail = data[:end], data[end:]
        self.stamps = [int(stamp) for stamp in frames.STAMP.findall(whole)]
        self.content += len(self.stamps)
        if b"data: [DONE]" in whole or b"event: message_stop" in whole:
            self.terminated = True
        return len(self.stamps)
