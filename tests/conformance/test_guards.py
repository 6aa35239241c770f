"""What the SDKs make of a call that a guard refuses, with their own habits: streams, retries, classes of errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.support.config import CANARY, standard
from tests.support.gateway import PLAIN, Gateway
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("guards-sdk")]

KEY = f"anm-sk-{CANARY}-guarded"
ASKED: list[Any] = [{"role": "user", "content": "Write to jane@example.com."}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway() -> AsyncIterator[Gateway]:
    async with FakeProvider() as provider:
        config = standard(provider.base_url)
        config["policies"] = {"strict": {"guardrails": {"pii": {"mode": "block"}}}}
        config["keys"][KEY] = {"tenant": "guarded", "tier": "enterprise", "policy": "strict"}
        async with Gateway(config, flags=PLAIN) as gateway:
            yield gateway


async def requests(gateway: Gateway) -> float:
    return (await gateway.metrics()).value("gateway_requests_total", outcome="rejected")


@pytest.mark.parametrize("stream", [False, True])
async def test_openai(gateway: Gateway, stream: bool) -> None:
    """`PermissionDeniedError` with the code and the place, raised by the call itself, and not tried again."""
    before = await requests(gateway)

    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=KEY) as client:
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await client.chat.completions.create(model="m", messages=ASKED, stream=stream)

    error = caught.value
    assert (error.status_code, error.code, error.param) == (403, "pii_blocked", "messages[0].content")
    assert await requests(gateway) == before + 1


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic(gateway: Gateway, stream: bool) -> None:
    """The same of Anthropic's, which finds the code in the body."""
    before = await requests(gateway)

    async with anthropic.AsyncAnthropic(base_url=f"http://127.0.0.1:{gateway.port}/anthropic", api_key=KEY) as client:
        with pytest.raises(anthropic.PermissionDeniedError) as caught:
            await client.messages.create(model="claude", max_tokens=9, messages=ASKED, stream=stream)

    error: Any = caught.value
    assert (error.status_code, error.body["error"]["code"]) == (403, "pii_blocked")
    assert error.body["error"]["type"] == "permission_error"
    assert await requests(gateway) == before + 1
