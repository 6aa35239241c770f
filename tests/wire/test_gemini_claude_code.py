"""Claude Code with a model at Gemini's own API: two rounds, as it sends them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.support.client import Reply
from tests.support.config import KEY
from tests.support.gateway import MESSAGES
from tests.support.notation import GC, GT
from tests.support.stage import Seen
from tests.wire import claude_code
from tests.wire.desk import Desk, items
from tests.wire.test_claude_code import blocks_of
from tests.wire.test_gemini import MODEL, open_gemini

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLS: list[dict[str, Any]] = [
    {"functionCall": {"name": "Read", "args": {"path": "a"}, "id": "id-1"}, "thoughtSignature": "c2lnbmVk"},
    {"functionCall": {"name": "Read", "args": {"path": "b"}, "id": "id-2"}},
    {"functionCall": {"name": "Grep", "args": {}, "id": "id-3"}},
]
ASKS = [
    GC({"text": "Both files.", "thought": True}, tokens=(12_000, 0, 20)),
    GT("Looking.", tokens=(12_000, 2, 30)),
    GC(*CALLS, tokens=(12_000, 40, 30)),
    GT("", finish="STOP", tokens=(12_000, 40, 30)),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_gemini() as desk:
        yield desk


async def ask(desk: Desk, messages: list[Any], script: list[bytes]) -> tuple[Reply, Seen]:
    desk.provider.script(MODEL, script)
    headers = {header.replace("-", "_"): value for header, value in claude_code.HEADERS.items()}
    client = desk.gateway.client(None, x_api_key=KEY, **headers)
    reply = await client.request("POST", f"{MESSAGES}?beta=true", claude_code.body(MODEL, messages))
    assert reply.status == 200, reply.body
    return reply, desk.provider.requests[-1]


async def test_to_the_end(desk: Desk) -> None:
    """48 kB with 12 tools arrive whole, the calls go back signed with results inside, and the last word comes."""
    turn = claude_code.first_turn()
    first, asked = await ask(desk, turn, ASKS)
    content = blocks_of(first)
    calls = [block for block in content if block["type"] == "tool_use"]
    answered = [*turn, {"role": "assistant", "content": content}, claude_code.results(calls)]

    last, told = await ask(desk, answered, [GT("Done.", finish="STOP", tokens=(12_100, 1, 4))])

    declared = asked.json["tools"][0]["functionDeclarations"]
    assert [each["name"] for each in declared] == list(claude_code.NAMES)
    assert [each["parametersJsonSchema"] for each in declared] == [t["input_schema"] for t in claude_code.tools()]
    assert asked.json["generationConfig"] == {
        "maxOutputTokens": 32_000,
        "thinkingConfig": {"thinkingLevel": "medium", "includeThoughts": True},
    }
    user, spoken, results = told.json["contents"]
    assert user["role"] == "user"
    assert spoken == {"role": "model", "parts": [{"text": "Looking."}, *CALLS]}
    responses = [part["functionResponse"] for part in results["parts"] if "functionResponse" in part]
    assert [(each["id"], each["response"]) for each in responses] == [
        ("id-1", {"result": "1\timport this"}),
        ("id-2", {"error": "No such file"}),
        ("id-3", {"result": ""}),
    ]
    assert responses[2]["parts"] == [{"inlineData": {"mimeType": "image/png", "data": claude_code.PNG}}]
    assert [block["text"] for block in blocks_of(last)] == ["Done."]
    assert set(items(last)[-2]["_anoman"]["params"]["dropped"]) == {
        "cache_control", "context_management", "metadata.user_id",
    }  # fmt: skip
