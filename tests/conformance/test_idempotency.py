"""The official SDKs with a name for their calls, given as they give every header of a call."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest
import pytest_asyncio

from tests.support.acts import no_answer, pause_ms
from tests.support.config import KEY
from tests.support.gateway import PLAIN
from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MS, MX, R, T, U, json_answer
from tests.wire.desk import Desk, open_desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-idempotency")]

MESSAGES: Any = [{"role": "user", "content": "Hi"}]
_numbers = itertools.count()


def named(name: str | None = None) -> dict[str, str]:
    return {"Idempotency-Key": name or f"sdk-{next(_numbers)}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(PLAIN) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def chat(desk: Desk) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{desk.gateway.port}/v1", api_key=KEY) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def claude(desk: Desk) -> AsyncIterator[anthropic.AsyncAnthropic]:
    base_url = f"http://127.0.0.1:{desk.gateway.port}/anthropic"
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY) as client:
        yield client


async def test_openai(desk: Desk, chat: openai.AsyncOpenAI) -> None:
    """Both calls of one name are one call: the same completion, by the same request id."""
    desk.provider.script("m", [json_answer("Halo")])
    before, name = len(desk.provider.requests), named()

    answers = [await chat.chat.completions.create(model="m", messages=MESSAGES, extra_headers=name) for _ in range(2)]

    assert answers[0].model_dump() == answers[1].model_dump()
    assert answers[0]._request_id == answers[1]._request_id
    assert len(desk.provider.requests) == before + 1


async def test_openai_stream(desk: Desk, chat: openai.AsyncOpenAI) -> None:
    """A stream that is repeated is the same stream to the SDK, chunk by chunk, and so is its own summary of it."""
    desk.provider.script("m", [R(), T("Ha"), T("lo"), FIN(), U(7, 2), DONE])
    before, name = len(desk.provider.requests), named()

    async def listen() -> list[Any]:
        stream = await chat.chat.completions.create(model="m", messages=MESSAGES, stream=True, extra_headers=name)
        return [chunk.model_dump() async for chunk in stream]

    first, again = await listen(), await listen()

    assert first == again
    assert first[-1]["_anoman"]["cost_usd"]
    assert len(desk.provider.requests) == before + 1


async def test_anthropic_stream(desk: Desk, claude: anthropic.AsyncAnthropic) -> None:
    """The same of Anthropic's events and of the message that its helper puts together."""
    desk.provider.script("claude", [MS(7), CBS(0), CBD(0, "Ha"), CBD(0, "lo"), CBX(0), MD(usage=2), MX])
    before, name = len(desk.provider.requests), named()

    async def listen() -> tuple[list[str], Any]:
        async with claude.messages.stream(
            model="claude", max_tokens=9, messages=MESSAGES, extra_headers=name
        ) as stream:
            kinds = [event.type async for event in stream]
            return kinds, (await stream.get_final_message()).model_dump()

    first, again = await listen(), await listen()

    assert first == again
    assert first[1]["content"][0]["text"] == "Halo"
    assert len(desk.provider.requests) == before + 1


async def test_both_at_once(desk: Desk, chat: openai.AsyncOpenAI) -> None:
    """Of two that ask at once the SDK of the second one tries again by itself, and gets the first one's answer."""
    desk.provider.script("m", [pause_ms(300), json_answer("Halo")])
    before, name = len(desk.provider.requests), named()

    first, second = await asyncio.gather(
        *(chat.chat.completions.create(model="m", messages=MESSAGES, extra_headers=name) for _ in range(2))
    )

    assert first.model_dump() == second.model_dump()
    assert len(desk.provider.requests) == before + 1


async def test_the_sdk_gives_up_and_tries_again(desk: Desk, claude: anthropic.AsyncAnthropic) -> None:
    """An SDK whose own timeout is over tries again with the same name: the call is done anew, and answered."""
    desk.provider.script("claude", [no_answer()], [json_answer("Halo", dialect="anthropic")])
    before = len(desk.provider.requests)

    message = await claude.with_options(timeout=0.5, max_retries=5).messages.create(
        model="claude", max_tokens=9, messages=MESSAGES, extra_headers=named()
    )

    assert message.content[0].type == "text"
    assert len(desk.provider.requests) == before + 2
    await desk.provider.requests[before].gone()


async def test_another_call(desk: Desk, chat: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic) -> None:
    """Another call of the same name is an exception of its own, and no SDK tries it again."""
    desk.provider.script("m", [json_answer("Halo")])
    desk.provider.script("claude", [json_answer("Halo", dialect="anthropic")])
    name = named()
    await chat.chat.completions.create(model="m", messages=MESSAGES, extra_headers=name)
    before = len(desk.gateway.log)

    with pytest.raises(openai.UnprocessableEntityError) as by_openai:
        await chat.chat.completions.create(model="m", messages=MESSAGES, user="x", extra_headers=name)
    with pytest.raises(anthropic.UnprocessableEntityError) as by_anthropic:
        await claude.messages.create(model="claude", max_tokens=9, messages=MESSAGES, extra_headers=name)

    await desk.gateway.line(lambda line: line.get("request_id") == by_anthropic.value.request_id)
    refused = [line for line in desk.gateway.log[before:] if line.get("reason") == "idempotency_mismatch"]
    assert (by_openai.value.code, len(refused)) == ("idempotency_mismatch", 2)


async def test_what_is_no_name(chat: openai.AsyncOpenAI) -> None:
    """A name that is none is a plain 400 that says which header it is about."""
    with pytest.raises(openai.BadRequestError) as caught:
        await chat.chat.completions.create(model="m", messages=MESSAGES, extra_headers=named("a" * 256))

    assert (caught.value.code, caught.value.param) == ("invalid_request", "Idempotency-Key")
