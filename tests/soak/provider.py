"""The fake provider, a process of its own: `python -m tests.soak.provider FILE`.

It prints its port, answers as the scripts in the prompts say, and on SIGTERM writes what it has seen to FILE. `GET /`
tells how many requests it has seen and how many of them are not over.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from .dialects import ANTHROPIC, OPENAI, Speech, compact, reported
from .records import KEPT, Attempt, End, write_attempts
from .script import Script, script_of

_BACKLOG = 4096
_LINGER_ZERO = struct.pack("ii", 1, 0)  # close() sends RST instead of FIN
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_JSON_HEAD = b"HTTP/1.1 %d Said\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_BREAKS = ("fin", "use", "end")


class Memory:
    """Everything the provider has seen."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.open = 0
        self._asked: Counter[str] = Counter()

    def number(self, marker: str) -> int:
        """How many requests with *marker* there were before this one."""
        number = self._asked[marker]
        self._asked[marker] += 1
        return number


class _Body(msgspec.Struct):
    model: str = ""
    stream: bool = False


class Exchange:
    """One request and its answer, a step for each turn of the loop that something is due in."""

    def __init__(self, script: Script, body: _Body, speech: Speech, connection: Connection, act: str) -> None:
        self.script, self.speech, self.act = script, speech, act
        self._body = body
        self._connection = connection
        self._arrived_s = time.time()
        self._events = 0
        self._opened = False  # Anthropic's first event counts a token already
        self._usage: tuple[int, int, int] | None = None
        self._begun_s = time.monotonic()
        self._written_ms: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Wait as long as the script says, then answer."""
        self._later(self.script.wait_ms, self._answer)

    def abandoned(self) -> None:
        """The peer has left."""
        self._close("left")

    def _now_ms(self) -> int:
        """Since the arrival."""
        return int((time.monotonic() - self._begun_s) * 1000)

    def _later(self, ms: int, step: Callable[[], None]) -> None:
        if ms:
            self._timer = asyncio.get_running_loop().call_later(ms / 1000, step)
        else:
            step()

    def _answer(self) -> None:
        if self.act.startswith("s"):
            status = int(self.act[1:])
            self._connection.write_json(status, compact({"error": {"message": "scripted", "type": "scripted"}}))
            self._close("refused")
        elif self.act == "drop":
            self._cut()
        elif self._body.stream:
            self._connection.write(_STREAM_HEAD + self.speech.opening(self.script, self._body.model))
            self._opened = True
            self._next()
        else:
            self._answer_whole()

    def _answer_whole(self) -> None:
        answer = self.speech.answer(self.script, self._body.model)
        self._events = self.script.tokens
        self._written_ms = [self._now_ms()] * min(self._events, KEPT)
        if self.act == "ok":
            self._usage = reported(self.script)
            self._connection.write_json(200, answer)
            self._close("finished")
        else:
            self._connection.write(_JSON_HEAD % (200, len(answer)) + answer[: len(answer) // 2])
            self._cut()

    def _next(self) -> None:
        """Write the next token, or what comes behind the last one."""
        script = self.script
        if self.act.startswith("mid") and self._events >= min(int(self.act[3:]), script.tokens):
            self._cut()
        elif self._events == script.tokens:
            self._end()
        else:
            (word,) = script.words(self._events, self._events + 1)
            self._connection.write(self.speech.piece(script, self._body.model, word))
            self._events += 1
            if len(self._written_ms) < KEPT:
                self._written_ms.append(self._now_ms())
            self._later(script.interval_ms, self._next)

    def _end(self) -> None:
        """The closing words, as far as the act lets them go."""
        speech, script, model = self.speech, self.script, self._body.model
        parts = [speech.finish(script, model), speech.usage(script, model), speech.terminator]
        kept = _BREAKS.index(self.act) if self.act in _BREAKS else len(parts)
        if kept > 1:
            self._usage = reported(script)
        self._connection.write(b"".join(parts[:kept]) + (b"0\r\n\r\n" if kept == len(parts) else b""))
        if kept == len(parts):
            self._close("finished")
        else:
            self._cut()

    def _cut(self) -> None:
        """Close or reset the connection, by turns."""
        self._close("cut")
        self._connection.drop(self.script.marker[-1:] in "02468")

    def _close(self, end: End) -> None:
        if self._timer is not None:
            self._timer.cancel()
        script = self.script
        counts_first = self._opened and self.speech is ANTHROPIC
        attempt = Attempt(
            marker=script.marker,
            model=self._body.model,
            arrived_s=self._arrived_s,
            stream=self._body.stream,
            prompt=script.prompt,
            tokens=max(script.counted(self._events), int(counts_first)),
            end=end,
            reported=self._usage,
            written_ms=tuple(self._written_ms),
            over_ms=self._now_ms(),
        )
        self._connection.over(attempt)


class Connection(asyncio.Protocol):
    """One connection of a gateway; its requests come one after another, with their length."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._transport: asyncio.Transport
        self._inbox = b""
        self._exchange: Exchange | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream server makes stream transports

    def data_received(self, data: bytes) -> None:
        """Gather one request."""
        self._inbox += data
        head, found, rest = self._inbox.partition(b"\r\n\r\n")
        if not found:
            return
        _, has_length, after = head.lower().partition(b"content-length:")
        length = int(after.split(b"\r\n", 1)[0]) if has_length else 0
        if len(rest) >= length:
            self._inbox = b""
            self._take(head.split(b" ", 2)[1].partition(b"?")[0], rest[:length])

    def _take(self, path: bytes, body: bytes) -> None:
        memory, script = self._memory, script_of(body)
        if path == b"/":
            self.write_json(200, compact({"seen": len(memory.attempts) + memory.open, "open": memory.open}))
        elif script is None or not path.endswith((b"/messages", b"/chat/completions")):
            self.write_json(404, b'{"error":{"message":"no such path, or no script"}}')
        else:
            memory.open += 1
            speech = ANTHROPIC if path.endswith(b"/messages") else OPENAI
            asked = msgspec.json.decode(body, type=_Body)
            act = script.act(memory.number(script.marker))
            self._exchange = Exchange(script, asked, speech, self, act)
            self._exchange.begin()

    def write(self, data: bytes) -> None:
        """Hand bytes to the kernel; a peer that does not read has them kept here."""
        self._transport.write(data)

    def write_json(self, status: int, answer: bytes) -> None:
        """A whole answer."""
        self._transport.write(_JSON_HEAD % (status, len(answer)) + answer)

    def drop(self, is_reset: bool) -> None:
        """Leave the peer, with FIN behind what was written, or with RST."""
        if is_reset:
            sock: socket.socket = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            self._transport.abort()
        else:
            self._transport.close()

    def over(self, attempt: Attempt) -> None:
        """The exchange has ended."""
        self._exchange = None
        self._memory.open -= 1
        self._memory.attempts.append(attempt)

    def eof_received(self) -> None:
        """A FIN: gateways do not half-close. The transport closes by itself afterwards."""
        self._abandon()

    def connection_lost(self, exc: Exception | None) -> None:
        """A reset, or what follows a FIN."""
        self._abandon()

    def _abandon(self) -> None:
        if self._exchange is not None:
            self._exchange.abandoned()


async def _serve(path: Path) -> None:
    loop, memory, stop = asyncio.get_running_loop(), Memory(), asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    server = await loop.create_server(lambda: Connection(memory), "127.0.0.1", 0, backlog=_BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await stop.wait()
    server.close()
    write_attempts(path, memory.attempts)


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
