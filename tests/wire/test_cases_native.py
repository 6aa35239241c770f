"""TR cases of calls that stay in OpenAI's dialect, over sockets: what a vendor that lacks a part of it is asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.client import Reply
from tests.support.config import model, openai_provider
from tests.support.notation import DONE, FIN, R, T, U
from tests.support.provider import FakeProvider
from tests.wire.desk import Desk, error_of, items, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = [R(), T("ok"), FIN(), U(7, 1), DONE]
VENDORS = ("deepseek", "mistral", "openai", "openai_compatible", "openai_compatible_plain")
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    """A model by the name of each vendor, whose longest answer has 4,096 tokens; all vendors are one provider."""
    async with FakeProvider() as other:
        config: dict[str, Any] = {
            "models": {name: model(f"at-{name}/{name}", max_output_tokens=4096) for name in VENDORS},
            "providers": {f"at-{name}": openai_provider(other.base_url, preset=name) for name in VENDORS},
        }
        config["models"]["deepseek"]["input"] = ["text"]
        async with open_desk(**config) as desk:
            desk.provider = other
            yield desk


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


def params(reply: Reply) -> Any:
    return items(reply)[-2]["_anoman"]["params"]


async def test_tr_15_text_is_a_string(desk: Desk) -> None:
    """Lists of texts reach a vendor of strings as strings with both parts, and the answer says so."""
    messages = [
        {"role": "system", "content": parts("s", "t")},
        {"role": "user", "content": parts("a", "b")},
        {"role": "assistant", "content": parts("c", "d"), "tool_calls": [CALL]},
        {"role": "tool", "content": parts("e", "f"), "tool_call_id": "c1"},
    ]

    reply = await desk.ask(ANSWER, model="deepseek", messages=messages)

    texts = ["s\nt", "a\nb", "c\nd", "e\nf"]
    expected = [message | {"content": text} for message, text in zip(messages, texts, strict=True)]
    assert desk.provider.requests[-1].json["messages"] == expected
    assert params(reply) == {"translated": [f"messages[{at}].content" for at in range(4)], "dropped": []}


async def test_tr_15_an_image_for_a_text_model(desk: Desk) -> None:
    """An image to a model of text is refused before the vendor is asked."""
    image = {"type": "image_url", "image_url": {"url": "https://a.test/a.png"}}
    asked = len(desk.provider.requests)

    reply = await desk.ask(model="deepseek", messages=[{"role": "user", "content": [*parts("a"), image]}])

    assert (reply.status, error_of(reply)["code"]) == (400, "vision_not_supported")
    assert len(desk.provider.requests) == asked


async def test_tr_15_others_get_lists(desk: Desk) -> None:
    """Where lists are taken, or nothing is known, they go on as they are."""
    messages = [{"role": "developer", "content": parts("a", "b")}, {"role": "user", "content": "c"}]
    for vendor in ("openai", "openai_compatible"):
        reply = await desk.ask(ANSWER, model=vendor, messages=messages)

        assert desk.provider.requests[-1].json["messages"] == messages
        assert params(reply) == {"translated": [], "dropped": []}


async def test_tr_15_what_a_string_cannot_say(desk: Desk) -> None:
    """A mark on a part is dropped with a note, or refused in its place where the caller insists."""
    marked = [{**parts("a")[0], "cache_control": {"type": "ephemeral"}}]
    body = {"model": "deepseek", "messages": [{"role": "user", "content": marked}], "stream": True}
    place = "messages[0].content[0].cache_control"

    reply = await desk.ask(ANSWER, **body)
    strict = await desk.gateway.client().request(
        "POST", "/v1/chat/completions", body, headers={"x-anoman-strict-params": "1"}
    )

    assert params(reply) == {"translated": ["messages[0].content"], "dropped": [place]}
    assert (strict.status, error_of(strict)["param"]) == (400, place)


@pytest.mark.parametrize("vendor", ["deepseek", "mistral", "openai_compatible_plain"])
async def test_tr_22_the_limit_has_its_older_name(desk: Desk, vendor: str) -> None:
    """`max_completion_tokens` is `max_tokens` for vendors that know that alone; strict callers have no objection."""
    body = {"model": vendor, "messages": [{"role": "developer", "content": "a"}], "stream": True}
    body["max_completion_tokens"] = 50
    desk.provider.script(vendor, ANSWER)

    reply = await desk.gateway.client().request(
        "POST", "/v1/chat/completions", body, headers={"x-anoman-strict-params": "1"}
    )

    seen = desk.provider.requests[-1].json
    assert seen["max_tokens"] == 50
    assert "max_completion_tokens" not in seen
    assert seen["messages"] == [{"role": "system", "content": "a"}]
    assert params(reply) == {"translated": ["max_completion_tokens", "messages[0].role"], "dropped": []}


async def test_tr_22_limits_beyond_the_model(desk: Desk) -> None:
    """No limit at all is none of 0, which is refused; one above the model's is lowered to it for whichever vendor."""
    zero = await desk.ask(model="openai", max_tokens=0)
    huge = await desk.ask(ANSWER, model="openai", max_completion_tokens=10_000_000)
    lowered = desk.provider.requests[-1].json
    folded = await desk.ask(ANSWER, model="mistral", max_completion_tokens=10_000_000)

    assert (zero.status, error_of(zero)["param"]) == (400, "max_tokens")
    assert (lowered["max_completion_tokens"], params(huge)["translated"]) == (4096, ["max_completion_tokens"])
    assert desk.provider.requests[-1].json["max_tokens"] == 4096
    assert params(folded)["translated"] == ["max_completion_tokens"]


@pytest.mark.parametrize("vendor", VENDORS)
async def test_tr_34_empty_lists(desk: Desk, vendor: str) -> None:
    """Empty `tools` and `tool_calls` reach no vendor; they said nothing, and nothing is said of them."""
    history = [{"role": "assistant", "content": "a", "tool_calls": []}, {"role": "user", "content": "b"}]

    reply = await desk.ask(ANSWER, model=vendor, messages=history, tools=[], functions=None)

    seen = desk.provider.requests[-1].json
    assert seen["messages"] == [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    assert not {"tools", "functions"} & seen.keys()
    assert params(reply) == {"translated": [], "dropped": []}
