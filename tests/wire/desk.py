"""A gateway and its provider for a whole module of cases: scripts in, bytes and receipts out."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.acts import Answer
from tests.support.client import Reply, Stream
from tests.support.config import Config, standard
from tests.support.frames import blocks, chat, messages, named, parsed
from tests.support.gateway import CHAT, MESSAGES, STRICT, Gateway
from tests.support.provider import FakeProvider

Receipt = dict[str, Any]
BOTH = (CHAT, MESSAGES)


@dataclass
class Desk:
    """One gateway, one provider. Receipts of earlier tests of the module are passed over."""

    provider: FakeProvider
    gateway: Gateway
    _receipts: list[Receipt] = field(default_factory=list)

    async def ask(self, *answers: Answer, path: str = CHAT, **fields: Any) -> Reply:
        """The whole answer to a streaming request that the provider answers by *answers*, one per attempt."""
        payload = self._prepare(answers, path, fields)
        return await self.gateway.client().request("POST", path, payload)

    @contextlib.asynccontextmanager
    async def stream(self, *answers: Answer, path: str = CHAT, **fields: Any) -> AsyncIterator[Stream]:
        """The stream under way, its head read."""
        payload = self._prepare(answers, path, fields)
        async with self.gateway.client().stream(path, payload) as stream:
            yield stream

    async def send(self, *answers: Answer, path: str = CHAT, **fields: Any) -> Stream:
        """A request that nothing has been waited for; the caller disposes of it."""
        return await self.gateway.client().open("POST", path, self._prepare(answers, path, fields))

    def _prepare(self, answers: tuple[Answer, ...], path: str, fields: dict[str, Any]) -> dict[str, Any]:
        model = fields.pop("model", "m" if path == CHAT else "claude")
        if answers:
            self.provider.script(model, *answers)
        return chat(model, **fields) if path == CHAT else messages(model, **fields)

    async def receipt(self, reply: Reply | Stream) -> Receipt:
        """The receipt of the request that *reply* answers."""
        request_id = reply.headers.get("x-request-id")
        return await self.receipt_where(lambda line: line["request_id"] == request_id)

    async def receipt_where(self, holds: Callable[[Receipt], bool]) -> Receipt:
        """The first receipt for which *holds* is true.

        Raises:
            TimeoutError: There is none within five seconds of the last one.
        """
        at = 0
        while True:
            if at == len(self._receipts):
                self._receipts += await self.gateway.settled(1)
            if holds(self._receipts[at]):
                return self._receipts.pop(at)
            at += 1


@contextlib.asynccontextmanager
async def open_desk(flags: tuple[str, ...] = STRICT, **overrides: Config) -> AsyncIterator[Desk]:
    """A desk with the standard configuration and *overrides*; leaving it checks the gateway's exit."""
    async with (
        FakeProvider() as provider,
        Gateway(standard(provider.base_url, **overrides), flags=flags) as gateway,
    ):
        yield Desk(provider, gateway)


def items(reply: Reply) -> list[Any]:
    """The data of every frame of a stream that was answered with 200 and ended properly, in whole frames."""
    assert reply.status == 200, reply.body
    assert reply.headers.get("content-type") == "text/event-stream; charset=utf-8"
    assert reply.ended_properly
    assert reply.body.endswith(b"\n\n")
    assert b"\r" not in reply.body
    return parsed(blocks(reply.body))


def events(reply: Reply) -> list[str | None]:
    """The event names of a stream of the Anthropic endpoint."""
    items(reply)
    return [name for name, _ in named(blocks(reply.body))]


def error_of(reply: Reply) -> dict[str, Any]:
    """The error object of a plain JSON answer in either envelope."""
    assert reply.headers.get("content-type") == "application/json"
    assert reply.headers.get("content-length") == str(len(reply.body))
    error: dict[str, Any] = reply.json["error"]
    return error


def text_of(parts: list[Any]) -> str:
    """The text of OpenAI chunks or Anthropic events."""
    out = []
    for item in parts:
        if not isinstance(item, dict):
            continue
        out += [choice["delta"].get("content") or "" for choice in item.get("choices", ())]
        out.append((item.get("delta") or {}).get("text") or "")
    return "".join(out)


def sdk_loop(reply: Reply) -> tuple[str, dict[str, Any] | None]:
    """What the documents' own loop makes of a stream: the text, and the usage if any chunk had one.

    Raises:
        KeyError, IndexError, TypeError: Where that loop would have crashed.
    """
    text, usage = "", None
    for item in items(reply):
        if item == "[DONE]":
            break
        if "error" in item:
            raise TypeError("error frame")
        text += item["choices"][0]["delta"].get("content") or ""
        usage = item.get("usage") or usage
    return text, usage


async def receipts(desk: Desk, request_id: str | None, panels: str) -> dict[str, dict[str, Any]]:
    """The receipts of the *panels* (their ids are single letters) of the run that *request_id* asked for."""
    return {
        panel: await desk.receipt_where(lambda row, panel=panel: row["request_id"] == f"{request_id}-{panel}")  # type: ignore[misc]
        for panel in panels
    }
