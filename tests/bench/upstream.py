"""The fake provider: raw protocols on the load's own event loop, so that both sides of a proxy share one clock.

It speaks `POST .../chat/completions` and `POST .../messages`, JSON and SSE, as the script in the prompt says, and
notes when a numbered request arrived, when it was answered in full and when its connection was closed under it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from . import frames
from .metronome import INTERVAL_MS, Metronome

_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_JSON_HEAD = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_BACKLOG = 4096


class Records:
    """What happened to the numbered requests; times are monotonic nanoseconds."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.answered: set[int] = set()
        self.cut: dict[int, int] = {}
        self.on_arrival: dict[int, Callable[[], None]] = {}
        self.on_cut: Callable[[], None] | None = None

    def arrived(self, number: int) -> None:
        """The whole request is here."""
        self.open.add(number)
        callback = self.on_arrival.pop(number, None)
        if callback is not None:
            callback()

    def finished(self, number: int) -> None:
        """The answer was written to its end."""
        self.open.discard(number)
        self.answered.add(number)

    def closed(self, number: int) -> None:
        """The proxy closed or reset the connection before the answer's end."""
        self.open.discard(number)
        self.cut.setdefault(number, time.monotonic_ns())
        if self.on_cut is not None:
            self.on_cut()


class Connection(asyncio.Protocol):
    """One connection of a proxy; answers its requests one after another, bodies by Content-Length only."""

    def __init__(self, records: Records, metronome: Metronome) -> None:
        self._records = records
        self._metronome = metronome
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._buffer = b""
        self._script: frames.Script | None = None
        self._recording: frames.Recording
        self._left = 0
        self._paused = False
        self._timer: asyncio.Handle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        self._transport = transport  # type: ignore[assignment]  # a stream server makes stream transports

    def data_received(self, data: bytes) -> None:
        """Gather one request; proxies of ours do not pipeline."""
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        _, found, rest = head.partition(b"content-length:")
        length = int(rest.split(b"\r\n", 1)[0]) if found else 0
        if len(self._buffer) < end + 4 + length:
            return
        body = self._buffer[end + 4 : end + 4 + length]
        path = self._buffer.split(b" ", 2)[1].partition(b"?")[0]
        self._buffer = b""
        self._serve(path, body)

    def _serve(self, path: bytes, body: bytes) -> None:
        anthropic = path.endswith(b"/messages")
        if not anthropic and not path.endswith(b"/chat/completions"):
            self._json(b"404 Not Found", b'{"error":{"message":"no such path"}}')
            return
        self._script = script = frames.script_of(body)
        if script.id:
            self._records.arrived(script.id)
        begin: Callable[[], None]
        if frames.wants_stream(body):
            self._recording = (
                frames.anthropic_stream(script.size)
                if anthropic
                else frames.openai_stream(script.size, frames.wants_usage(body))
            )
            begin = self._begin_stream
        else:
            answer = frames.anthropic_answer(script.size) if anthropic else frames.openai_answer(script.size)
            begin = lambda: self._finish(answer)  # noqa: E731 - one of two ways to begin
        if script.first_ms:
            self._timer = self._loop.call_later(script.first_ms / 1000, begin)
        else:
            begin()

    def _json(self, status: bytes, answer: bytes) -> None:
        self._transport.write(_JSON_HEAD % (status, len(answer)) + answer)

    def _finish(self, answer: bytes) -> None:
        self._json(b"200 OK", answer)
        self._settle()

    def _settle(self) -> None:
        script, self._script = self._script, None
        if script is not None and script.id:
            self._records.finished(script.id)

    def _begin_stream(self) -> None:
        assert self._script is not None
        recording, self._left = self._recording, self._script.events
        self._transport.write(_STREAM_HEAD + recording.opening)
        self.beat()
        if self._script is None:
            return
        if self._script.interval_ms == INTERVAL_MS:
            self._metronome.join(self)
        else:
            self._wait()

    def _wait(self) -> None:
        assert self._script is not None
        if self._script.interval_ms:
            self._timer = self._loop.call_later(self._script.interval_ms / 1000, self._step)
        elif not self._paused:
            self._timer = self._loop.call_soon(self._step)

    def _step(self) -> None:
        self.beat()
        if self._script is not None:
            self._wait()

    def beat(self) -> None:
        """Send the next content frame, after the last one the stream's end."""
        if self._left > 0:
            self._left -= 1
            self._transport.write(self._recording.content(time.monotonic_ns()))
        if self._left == 0:
            self._metronome.leave(self)
            self._transport.write(self._recording.closing)
            self._settle()

    def pause_writing(self) -> None:
        """The proxy is slower than a flat-out stream; a paced one goes on, the kernel buffers it."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on with a flat-out stream."""
        self._paused = False
        if self._script is not None and self._script.interval_ms == 0 and self._left:
            self._wait()

    def eof_received(self) -> None:
        """A FIN; the transport closes by itself afterwards."""
        self._abandon()

    def connection_lost(self, exc: Exception | None) -> None:
        """A reset, or what follows a FIN."""
        self._abandon()

    def _abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._metronome.leave(self)
        script, self._script = self._script, None
        if script is not None and script.id:
            self._records.closed(script.id)


class Provider:
    """A listening fake provider."""

    def __init__(self, server: asyncio.Server, records: Records, metronome: Metronome) -> None:
        self._server = server
        self._metronome = metronome
        self.records = records
        self.port: int = server.sockets[0].getsockname()[1]

    @classmethod
    async def start(cls) -> Provider:
        """Listen on a free loopback port."""
        loop = asyncio.get_running_loop()
        records, metronome = Records(), Metronome(loop)
        server = await loop.create_server(lambda: Connection(records, metronome), "127.0.0.1", 0, backlog=_BACKLOG)
        return cls(server, records, metronome)

    def close(self) -> None:
        """Stop listening and beating."""
        self._server.close()
        self._metronome.close()
