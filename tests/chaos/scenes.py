"""What the chaos tests share: the two endpoints as data, scripts in their dialects, and receipts of shared gateways."""

from __future__ import annotations

import asyncio
import json
import re
import resource
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.providers.families import family_of
from tests.support import frames as bodies
from tests.support.client import Reply, Stream
from tests.support.config import Config
from tests.support.frames import named
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, Dialect, R, T, U
from tests.support.provider import FakeProvider

PROMISE_S = 0.05  # contract, 6: a client's close reaches the upstream within 50 ms
PAGE_BYTES = resource.getpagesize()
RCVBUF = 4096  # few bytes hide in the kernel of a client that reads slowly
STORM_S = 0.5  # reliability, B2: a thousand at once


@dataclass(frozen=True, slots=True)
class Side:
    """One endpoint: how it is asked, and how its provider speaks.

    Attributes:
        dialect: The provider's.
        model: A model with one route of the same name.
        fallback: A model whose routes are `first`, then `second`.
    """

    name: str
    path: str
    dialect: Dialect
    model: str
    fallback: str
    first: str
    second: str
    ask: Callable[..., dict[str, Any]]
    start: bytes
    piece: Callable[[str], bytes]
    finish: bytes

    def counted(self, tokens: int) -> int:
        """What *tokens* of the vocabulary that we count with are by our count for this side's models."""
        return round(tokens * family_of(self.model, self.model).factor)

    def whole(self, *texts: str) -> list[bytes]:
        """The script of a good stream."""
        return [self.start, *map(self.piece, texts), self.finish]


OPENAI = Side("chat", CHAT, "openai", "m", "fallback", "first", "second", bodies.chat, R(), T, FIN() + U(7, 2) + DONE)
ANTHROPIC = Side(
    "messages", MESSAGES, "anthropic", "claude", "claude-fallback", "first-claude", "second-claude",
    bodies.messages, MS(7) + CBS(0), lambda text: CBD(0, text), CBX(0) + MD(usage=2) + MX,
)  # fmt: skip
SIDES = (OPENAI, ANTHROPIC)

# The same endpoints with providers of the other dialect. The fallback models are native, so their first and second
# are of no use here.
CHAT_ABROAD = replace(ANTHROPIC, name="chat-abroad", path=CHAT, model="chat-abroad", ask=bodies.chat)
MESSAGES_ABROAD = replace(OPENAI, name="messages-abroad", path=MESSAGES, model="messages-abroad", ask=bodies.messages)
ALL_SIDES = (*SIDES, CHAT_ABROAD, MESSAGES_ABROAD)


def ends_well(side: Side, frames: Sequence[bytes]) -> bool:
    """Whether *frames* end as a complete answer does."""
    said = named(frames)
    if any(_error(data) for _, data in said):
        return False
    if side.path == CHAT:
        finishes = [choice for _, data in said[:-1] for choice in data["choices"] if choice["finish_reason"]]
        return len(finishes) == 1 and said[-1][1] == "[DONE]"
    return said[-1][0] == "message_stop"


def interruption(side: Side, frames: Sequence[bytes]) -> dict[str, Any]:
    """The `_anoman` block of the error frame that *frames* end with, checked against the contract to the letter."""
    said = named(frames)
    assert not [data for _, data in said if _finish(data)], "a stream that broke must not say that it finished"
    if side.path == CHAT:
        assert frames[-1] == b"data: [DONE]"
        frame = frames[-2]
        block: dict[str, Any] = said[-2][1]["error"]["_anoman"]
        error = {"type": "provider_error", "code": "stream_interrupted", "message": _message(block)}
        wanted = b"data: " + _compact({"error": {**error, "_anoman": block}})
    else:
        frame = frames[-1]
        assert said[-1][0] == "error"
        block = said[-1][1]["error"]["_anoman"]
        code = "stream_interrupted"
        error = {"type": "api_error", "message": _message(block), "code": code}
        error |= {"details": {"error_code": code}, "_anoman": block}
        whole = {"type": "error", "error": error, "request_id": said[-1][1]["request_id"]}
        wanted = b"event: error\ndata: " + _compact(whole)
    assert frame == wanted
    assert list(block) == ["failure_class", "completion_tokens"]
    return block


def _message(block: Mapping[str, Any]) -> str:
    if block["failure_class"] == "gateway_shutdown":
        return "the gateway shut down while the answer ran"
    return "upstream stream interrupted"


def refusal(side: Side, reply: Reply) -> str:
    """The code of a plain HTTP error, whose envelope is checked."""
    error = reply.json["error"]
    if side.path == CHAT:
        assert list(error) == ["message", "type", "param", "code", "_anoman"]
    else:
        assert (reply.json["type"], reply.json["request_id"][:4]) == ("error", "req_")
    assert reply.headers.get("content-type") == "application/json"
    assert reply.ended_properly
    return str(error["code"])


def _error(data: Any) -> bool:
    return isinstance(data, dict) and "error" in data


def _finish(data: Any) -> bool:
    if not isinstance(data, dict):
        return False
    return data.get("type") in ("message_delta", "message_stop") or any(
        choice.get("finish_reason") for choice in data.get("choices") or ()
    )


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


class Book:
    """What a gateway has logged since this was made, or since line *start*; for gateways that several tests share."""

    def __init__(self, gateway: Gateway, start: int | None = None) -> None:
        self._gateway = gateway
        self._from = len(gateway.log) if start is None else start

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every line logged since."""
        return self._gateway.log[self._from :]

    @property
    def receipts(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == "exchange.settled"]

    @property
    def errors(self) -> list[dict[str, Any]]:
        """Lines that ask a person to look."""
        return [line for line in self.lines if line["level"] == "error"]

    async def settled(self, count: int, within_s: float = 5.0) -> list[dict[str, Any]]:
        """
        The receipts, of which there must be *count*.

        Raises:
            TimeoutError: Fewer came within *within_s*.
        """
        await until(lambda: len(self.receipts) >= count, within_s)
        receipts = self.receipts
        assert len(receipts) == count
        return receipts


async def until(true: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for what nobody tells: the kernel's tables, a line that is written when it is written."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - nothing to await
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(config: Config, workers: int = 1) -> AsyncIterator[Gateway]:
    """A gateway as in production, all of its workers up."""
    async with Gateway(config, workers=workers, flags=PLAIN) as gateway:
        await gateway.logged("server.started", workers, 30)
        yield gateway


def rss_bytes(gateway: Gateway) -> int:
    """Resident memory of the process alone, without its workers."""
    return int(Path(f"/proc/{gateway.pid}/statm").read_text().split()[1]) * PAGE_BYTES


def heap_bytes(gateway: Gateway) -> int:
    """Memory of the process that is no file's: what it has allocated, without shared pages and socket buffers."""
    rollup = Path(f"/proc/{gateway.pid}/smaps_rollup").read_text()
    found = re.search(r"^Anonymous: +(\d+) kB$", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def stuck(gateway: Gateway, side: Side) -> Stream:
    """A client that reads nothing of its answer."""
    stream = await gateway.client().open("POST", side.path, side.ask(side.model), rcvbuf=RCVBUF)
    stream.peer.pause()
    return stream


async def quiet(gateway: Gateway, provider: FakeProvider, within_s: float = 5.0) -> None:
    """Wait until *gateway* holds no client and no busy upstream connection, and says that no stream is open."""
    await until(lambda: gateway.client_sockets() == 0, within_s)
    async with asyncio.timeout(within_s):
        while (await gateway.metrics()).value("gateway_open_streams"):  # noqa: ASYNC110 - a gauge has to be asked
            await asyncio.sleep(0.02)
