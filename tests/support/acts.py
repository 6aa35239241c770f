"""The steps a script of the fake provider is made of. Plain bytes in a script are a `send`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from tests.support.http1 import Framing
from tests.support.stage import Act, Seen, Stage

Pairs = Mapping[str, str] | Sequence[tuple[str, str]]
Script = Sequence["Act | bytes"]
Answer = Script | Callable[[Seen], Script]
"""A script, or a function that makes one from the request."""


async def play(script: Iterable[Act | bytes], stage: Stage) -> None:
    """Play *script* until it ends or the connection does."""
    for act in script:
        if stage.over:
            return
        await (send(act) if isinstance(act, bytes) else act).play(stage)


def status_line(code: int) -> str:
    """`429 Too Many Requests` for 429; a phrase of our own for codes nobody registered (529)."""
    try:
        return f"{code} {HTTPStatus(code).phrase}"
    except ValueError:
        return f"{code} Unregistered"


def _pairs(headers: Pairs) -> list[tuple[str, str]]:
    return list(headers.items() if isinstance(headers, Mapping) else headers)


@dataclass(frozen=True, slots=True)
class Status:
    """A whole answer with a content length; the connection stays."""

    code: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    async def play(self, stage: Stage) -> None:
        await stage.head(status_line(self.code), self.headers, len(self.body))
        await stage.body(self.body)
        await stage.end()


def status(code: int, headers: Pairs = (), body: Any = None) -> Status:
    """A whole answer: *body* as JSON, or as it is when it is bytes. A content type in *headers* wins."""
    pairs = _pairs(headers)
    if not any(name.lower() == "content-type" for name, _ in pairs):
        pairs.append(("Content-Type", "application/json"))
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return Status(code, tuple(pairs), data)


@dataclass(frozen=True, slots=True)
class HeadAct:
    """The head of an answer whose body follows in further acts."""

    code: int
    headers: tuple[tuple[str, str], ...]
    framing: Framing

    async def play(self, stage: Stage) -> None:
        await stage.head(status_line(self.code), self.headers, self.framing)


def head(
    content_type: str = "text/event-stream", headers: Pairs = (), *, framing: Framing = "chunked", code: int = 200
) -> HeadAct:
    """A head with *framing* "chunked", "eof" (the body ends with the connection) or a content length."""
    return HeadAct(code, (("Content-Type", content_type), *_pairs(headers)), framing)


@dataclass(frozen=True, slots=True)
class Send:
    """Body bytes, in one chunk."""

    data: bytes

    async def play(self, stage: Stage) -> None:
        await stage.body(self.data)


send = Send


@dataclass(frozen=True, slots=True)
class SendRaw:
    """Bytes on the socket as they are, outside any framing."""

    data: bytes

    async def play(self, stage: Stage) -> None:
        await stage.raw(self.data)


send_raw = SendRaw
garbage = SendRaw


@dataclass(frozen=True, slots=True)
class Pause:
    """Milliseconds of silence."""

    ms: float

    async def play(self, stage: Stage) -> None:
        await asyncio.sleep(self.ms / 1000)


pause_ms = Pause


@dataclass(frozen=True, slots=True)
class Stall:
    """Silence with the socket open, until the other side goes."""

    async def play(self, stage: Stage) -> None:
        await asyncio.shield(stage.seen.closed)


def stall() -> Stall:
    """Silence after what was sent."""
    return Stall()


def no_answer() -> Stall:
    """Silence instead of an answer."""
    return Stall()


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when the test says so."""

    event: asyncio.Event

    async def play(self, stage: Stage) -> None:
        await self.event.wait()


wait = Wait


@dataclass(frozen=True, slots=True)
class Reset:
    """RST, at once."""

    async def play(self, stage: Stage) -> None:
        stage.rst()


reset = Reset


@dataclass(frozen=True, slots=True)
class Fin:
    """FIN, with the body unfinished where its framing knows an end."""

    async def play(self, stage: Stage) -> None:
        stage.fin()


fin = Fin


@dataclass(frozen=True, slots=True)
class End:
    """The proper end of the body; a script that just stops does the same."""

    async def play(self, stage: Stage) -> None:
        await stage.end()


end = End


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same steps again and again: *times* times, or until the other side goes."""

    script: tuple[Act | bytes, ...]
    times: int | None

    async def play(self, stage: Stage) -> None:
        done = 0
        while not stage.over and (self.times is None or done < self.times):
            await play(self.script, stage)
            await asyncio.sleep(0)  # a script without a pause must not keep the loop from seeing the other side go
            done += 1


def repeat(*script: Act | bytes, times: int | None = None) -> Repeat:
    """*script* in a circle."""
    return Repeat(script, times)


def drip(data: bytes, every_ms: float = 0) -> Repeat:
    """*data* byte by byte, each in a write (and chunk) of its own."""
    steps: list[Act | bytes] = []
    for position in range(len(data)):
        steps += [data[position : position + 1], pause_ms(every_ms)]
    return Repeat(tuple(steps), 1)
