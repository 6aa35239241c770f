"""One gateway, one scripted provider and one Node process for all tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest_asyncio

from tests.conformance.node_clients import Clients
from tests.conformance.outcome import Ask, Client, Outcome
from tests.support.config import KEY, model, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.provider import FakeProvider

# Pings after a tenth of a second of silence: every client meets them in every test that has a pause.
# The last two models are those of the documents' samples.
CONFIG: dict[str, Any] = {
    "stream": {"heartbeat_s": 0.1, "commit_after_s": 0.3, "non_stream_s": 1.2},
    "models": {name: model(f"fake-openai/{name}") for name in ("claude-sonnet-4-6", "gpt-4o")},
}
MODELS = {"openai": "m", "anthropic": "claude"}
ABROAD = {"openai": "chat-abroad", "anthropic": "messages-abroad"}
"""By the dialect of the client: a model whose only provider speaks the other one."""


@dataclass(slots=True)
class Stand:
    """What a test works with."""

    provider: FakeProvider
    gateway: Gateway
    node: Clients

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def ask(self, client: Client, **more: Any) -> Outcome:
        """Have *client* ask the gateway; *more* are members of `Ask`."""
        ask = Ask(**{"base_url": self.base_url, "key": KEY, "model": MODELS[client.dialect], **more})
        return await (self.node.ask(client.name, ask) if client.ask is None else client.ask(ask))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stand() -> AsyncIterator[Stand]:
    async with FakeProvider() as provider:
        config = standard(provider.base_url, **CONFIG)
        async with Gateway(config, flags=PLAIN) as gateway, Clients() as node:
            yield Stand(provider, gateway, node)
