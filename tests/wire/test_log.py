"""The log of a running gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.config import standard
from tests.support.frames import chat
from tests.support.gateway import CHAT, Gateway
from tests.support.notation import json_answer
from tests.support.provider import FakeProvider

FLOOD = 40


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    async with FakeProvider() as provider:
        provider.script("m", [json_answer("Hello", (7, 1))])
        async with Gateway(standard(provider.base_url)) as running:
            yield running


async def test_the_tail_of_a_flood_is_told(gateway: Gateway) -> None:
    """Refused requests that only were counted are told of within seconds, not at the next one or at the end."""
    client = gateway.client()
    for _ in range(FLOOD):
        await client.request("GET", "/nowhere")

    told = 0
    async with asyncio.timeout(5):
        while told < FLOOD:
            (line,) = await gateway.logged("request.refused")
            told += line.get("suppressed", 0) + ("status" in line)

    assert told == FLOOD


async def test_identifiers_of_the_caller_reach_the_settled_line(gateway: Gateway) -> None:
    """Session, agent and end user are at the end of the line, as the caller named them."""
    client = gateway.client()
    client.headers += [("anoman-session-id", "s-1"), ("x-agent-id", "a-1")]
    reply = await client.request("POST", CHAT, chat("m", user="ani", stream=False))

    (line,) = await gateway.logged("exchange.settled")

    assert reply.status == 200
    assert list(line.items())[-3:] == [("session_id", "s-1"), ("agent_id", "a-1"), ("user", "ani")]
