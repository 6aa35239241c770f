"""Hostile raw HTTP against a real server on loopback. `GATEWAY_FUZZ_SCALE` scales the number of inputs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import cast

import msgspec
import pytest

from gateway.http.server import ServerLimits
from tests.support.door import CANARY, Door, open_door, request
from tests.support.hostile import hostile
from tests.support.http1 import cut_head
from tests.support.scale import examples

# As short as a busy machine allows: the server ends every connection of this test, so they set its pace.
LIMITS = ServerLimits(first_byte_s=0.2, header_s=0.2, keepalive_s=0.1, lingering_s=0.1)
AT_ONCE = 400
# The longest way out: head, body, lingering, each at its limit, for some pipelined requests, on two busy cores.
DEADLINE_S = 5.0
# Ways to be refused that even the everyday run must come by: else the generator has gone blunt.
REASONS = {
    "unreadable", "header_timeout", "line_too_long", "too_many_headers", "bad_target", "bad_method", "bad_request_line",
    "bad_header", "no_host", "two_hosts", "invalid_host", "invalid_request", "not_found", "request_timeout",
    "invalid_api_key", "unsupported_encoding", "expectation_failed", "request_too_large",
}  # fmt: skip


@dataclass(slots=True, eq=False)
class Stranger(asyncio.Protocol):
    """Sends *pieces* as segments of their own and collects until the server closes."""

    pieces: list[bytes]
    got: bytearray = field(default_factory=bytearray)
    gone: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        if self.pieces and self.transport is not None and not self.transport.is_closing():
            self.transport.write(self.pieces.pop(0))
        if self.pieces:
            asyncio.get_running_loop().call_later(0.002, self._send)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set_result(None)


async def visit(door: Door, pieces: list[bytes]) -> bytes:
    """Everything the server answers to *pieces* until it closes."""
    loop = asyncio.get_running_loop()
    transport, stranger = await loop.create_connection(lambda: Stranger(pieces), "127.0.0.1", door.port)
    try:
        async with asyncio.timeout(DEADLINE_S):
            await stranger.gone
    finally:
        transport.abort()
    return bytes(stranger.got)


def complaint(sent: bytes, got: bytes) -> str | None:
    """What is wrong with the answers in *got*, or None."""
    if CANARY.encode() in got:
        return "the credential came back"
    rest = bytearray(got)
    while rest:
        head = cut_head(rest)
        if head is None:
            return "half a head"
        if head.status >= 500:
            return f"status {head.status}"
        length = int(head.headers.get("content-length") or 0)
        if b"HEAD" in sent and (not rest or rest.startswith(b"HTTP/1.")):
            length = 0
        body = bytes(rest[:length])
        del rest[:length]
        if head.status >= 400 and body and not in_envelope(head.headers.get("content-type"), body):
            return f"not our envelope: {body!r}"
    return None


def in_envelope(content_type: str | None, body: bytes) -> bool:
    """Whether *body* is an error as OpenAI's or Anthropic's clients expect it."""
    if content_type != "application/json":
        return False
    answer = msgspec.json.decode(body)
    error = answer["error"]
    keys = {"type", "message", "code", "_anoman"} | ({"details"} if answer.get("type") == "error" else {"param"})
    return bool(set(error) == keys and error["message"])


def inputs(seed: int) -> list[bytes]:
    """The segments of input number *seed*."""
    rng = Random(seed)
    data = hostile(rng)
    if rng.random() < 0.15 and len(data) > 1:
        cut = rng.randrange(1, len(data))
        return [data[:cut], data[cut:]]
    return [data]


@pytest.mark.timeout(3600)
async def test_raw_fuzz() -> None:
    """Whatever is sent: no 5xx, an end within the deadline, errors in an envelope, and the credential nowhere."""
    seeds = iter(range(examples(2000)))
    wrong: list[tuple[int, str]] = []

    async def worker() -> None:
        for seed in seeds:
            pieces = inputs(seed)
            try:
                problem = complaint(b"".join(pieces), await visit(door, list(pieces)))
            except TimeoutError:
                problem = "still open"
            if problem:
                wrong.append((seed, problem))

    async with open_door(limits=LIMITS) as door:
        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
        after = await door.ask(request(body=b"{}"))

        assert wrong == []
        assert door.crashes == []
        assert CANARY not in repr([door.refused, door.logged])
        assert after.status == 200
        assert {reason for reason, _ in door.refused} >= REASONS


@pytest.mark.parametrize("seed", range(20))
async def test_one_line_per_bad_connection(seed: int) -> None:
    """A connection that sends one unreadable request in many segments is reported once (E25)."""
    noise = Random(seed).randbytes(400).replace(b"\n", b"").replace(b"\r", b"")
    async with open_door(limits=LIMITS) as door:
        await visit(door, [b"\x01" + noise[:40], *(noise[at : at + 20] for at in range(40, 400, 20))])

        assert len(door.refused) == 1
        assert door.logged == []
