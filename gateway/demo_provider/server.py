"""The HTTP side: two endpoints that differ in their dialect only, and the count of a prompt."""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from gateway.demo_provider.dialects import AnthropicMessages, Dialect, OpenAIChat
from gateway.demo_provider.models import BUSY, MAX_OUTPUT_TOKENS, MODELS, Break, Clock, Cut, Said, ToolCall
from gateway.demo_provider.pieces import pieces_of
from gateway.demo_provider.prompt import Prompt, read_prompt

MAX_BODY_BYTES = 32 * 1024 * 1024  # above the gateway's own limit, so that the limit that is met is the gateway's
BUSY_RETRY_S = 2
ENDLESS_JSON_TOKENS = 400  # a JSON answer of the endless model has to end somewhere: 10 s at its pace

_LINGER_ZERO = struct.pack("ii", 1, 0)  # on, 0 s: closing drops what is queued and sends RST

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Tally:
    """What was said so far. `full` once the caller's limit, or the model's, is reached."""

    limit: int
    text: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    tokens: int = 0

    @property
    def full(self) -> bool:
        return self.tokens >= self.limit

    @property
    def reason(self) -> str:
        if self.calls:
            return "tool"
        return "length" if self.full else "stop"

    def add(self, said: str | ToolCall) -> None:
        """Count *said*."""
        if isinstance(said, ToolCall):
            self.calls.append(said)
            self.tokens += len(pieces_of(said.arguments))
        else:
            self.text.append(said)
            self.tokens += 1


def application(clock: Clock) -> web.Application:
    """The provider as an application."""
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.router.add_post("/v1/chat/completions", _endpoint(OpenAIChat, clock))
    app.router.add_post("/v1/messages", _endpoint(AnthropicMessages, clock))
    app.router.add_post("/v1/messages/count_tokens", _count)
    app.router.add_get("/v1/models", _models)
    return app


async def _count(request: web.Request) -> web.Response:
    try:
        prompt = read_prompt(msgspec.json.decode(await request.read(), type=dict[str, Any]))
    except ValueError as exc:
        return _json(400, AnthropicMessages.error(400, f"Cannot read the request: {exc}"))
    return _json(200, {"input_tokens": prompt.tokens})


async def _models(request: web.Request) -> web.Response:
    rows = [{"id": name, "object": "model", "created": 0, "owned_by": "demo"} for name in MODELS]
    return _json(200, {"object": "list", "data": rows})


def _endpoint(make: Callable[[Prompt], Dialect], clock: Clock) -> Handler:
    error = OpenAIChat.error if make is OpenAIChat else AnthropicMessages.error

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            prompt = read_prompt(msgspec.json.decode(await request.read(), type=dict[str, Any]))
        except ValueError as exc:  # msgspec's errors are ValueErrors too
            return _json(400, error(400, f"Cannot read the request: {exc}"))
        if prompt.model == BUSY:
            return _json(429, error(429, "The demo is busy on purpose."), {"Retry-After": str(BUSY_RETRY_S)})
        model = MODELS.get(prompt.model)
        if model is None:
            return _json(404, error(404, f"There is no model {prompt.model!r} here."))
        answer = _stream if prompt.stream else _whole
        return await answer(request, prompt, make(prompt), model(prompt, clock))

    return handle


async def _stream(request: web.Request, prompt: Prompt, dialect: Dialect, said: Said) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    tally = Tally(min(prompt.max_tokens or MAX_OUTPUT_TOKENS, MAX_OUTPUT_TOKENS))
    try:
        async with aclosing(said):
            async for item in said:
                if not response.prepared:
                    await response.prepare(request)
                    await response.write(dialect.start(item))
                tally.add(item)
                for frame in [dialect.text(item)] if isinstance(item, str) else dialect.call(item):
                    await response.write(frame)
                if tally.full:
                    break
        await response.write(dialect.finish(tally.reason, tally.tokens))
    except Break:
        _reset(request)
    except Cut:
        pass  # the body ends properly, which is the point: only the terminator is missing
    except ConnectionError:
        pass  # the reader has gone
    return response


async def _whole(request: web.Request, prompt: Prompt, dialect: Dialect, said: Said) -> web.StreamResponse:
    tally = Tally(min(prompt.max_tokens or ENDLESS_JSON_TOKENS, MAX_OUTPUT_TOKENS))
    try:
        async with aclosing(said):
            async for item in said:
                tally.add(item)
                if tally.full:
                    break
    except Break:
        _reset(request)
    except Cut:
        half = msgspec.json.encode(dialect.whole("".join(tally.text), tally.calls, "stop", tally.tokens))
        return web.Response(body=half[: len(half) // 2], content_type="application/json")
    return _json(200, dialect.whole("".join(tally.text), tally.calls, tally.reason, tally.tokens))


def _reset(request: web.Request) -> None:
    transport = request.transport
    if transport is not None:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()


def _json(status: int, body: Any, headers: dict[str, str] | None = None) -> web.Response:
    data = msgspec.json.encode(body)
    return web.Response(status=status, body=data, headers=headers, content_type="application/json")
