"""Claude Code with a model whose provider speaks the OpenAI dialect: two rounds, as it sends them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.support.client import Reply
from tests.support.config import KEY, model
from tests.support.gateway import MESSAGES
from tests.support.histories import calls_in
from tests.support.notation import DONE, FIN, TC, R, T, U, chunk
from tests.support.stage import Act, Seen
from tests.wire import claude_code
from tests.wire.desk import Desk, events, items, open_desk

pytestmark = pytest.mark.asyncio(loop_scope="module")

# One per kind: takes no word on thinking; remembers its thoughts and wants them back; thinks with an effort.
MODELS = {"plain": "some-model", "remembers": "deepseek-v4", "efforts": "gpt-5.1"}
USAGE = {"prompt_tokens_details": {"cached_tokens": 9000}, "completion_tokens_details": {"reasoning_tokens": 30}}

each_model = pytest.mark.parametrize("name", MODELS)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with open_desk(models={name: model(f"fake-openai/{theirs}") for name, theirs in MODELS.items()}) as desk:
        yield desk


def reads_and_greps(_: Seen) -> list[bytes | Act]:
    """It thinks, says a word, and makes three calls, the last one with no arguments."""
    thoughts = [chunk({"reasoning_content": text}) for text in ("Both ", "files.")]
    calls = [TC(0, name="Read", id="call_1"), TC(0, '{"path":'), TC(0, '"a"}'), TC(1, name="Read", id="call_2")]
    calls += [TC(1, '{"path":"b"}'), TC(2, name="Grep", id="call_3")]
    return [R(), *thoughts, T("Looking."), *calls, FIN("tool_calls"), U(12_000, 50, **USAGE), DONE]


async def ask(desk: Desk, name: str, messages: list[Any], script: Callable[[Seen], Any]) -> tuple[Reply, Seen]:
    desk.provider.script(MODELS[name], script)
    headers = {header.replace("-", "_"): value for header, value in claude_code.HEADERS.items()}
    client = desk.gateway.client(None, x_api_key=KEY, **headers)
    reply = await client.request("POST", f"{MESSAGES}?beta=true", claude_code.body(name, messages))
    assert reply.status == 200, reply.body
    return reply, desk.provider.requests[-1]


def blocks_of(reply: Reply) -> list[dict[str, Any]]:
    """The content of a streamed message, put together as the client does it."""
    out: list[dict[str, Any]] = []
    inputs: dict[int, str] = {}
    for item in items(reply):
        if item["type"] == "content_block_start":
            assert item["index"] == len(out)
            out.append(dict(item["content_block"]))
        if item["type"] == "content_block_delta":
            block, delta = out[item["index"]], item["delta"]
            for member in ("text", "thinking", "signature"):
                if member in delta:
                    block[member] += delta[member]
            inputs[item["index"]] = inputs.get(item["index"], "") + delta.get("partial_json", "")
    for index, block in enumerate(out):
        if block["type"] == "tool_use":
            block["input"] = json.loads(inputs[index])
    return out


def places(reply: Reply) -> dict[str, set[str]]:
    params = items(reply)[-2]["_anoman"]["params"]
    return {kind: set(names) for kind, names in params.items()}


@each_model
async def test_first_request(desk: Desk, name: str) -> None:
    """48 kB with 12 tools arrive whole in the provider's form, and all that it cannot take is named."""
    turn = claude_code.first_turn()
    assert 48_000 <= len(json.dumps(claude_code.body(name, turn))) <= 50_000

    reply, seen = await ask(desk, name, turn, reads_and_greps)

    sent = seen.json
    system, user, *rest = sent["messages"]
    assert (seen.target, sent["stream"], system["role"], user["role"]) == (
        "/v1/chat/completions",
        True,
        "system",
        "user",
    )
    instructions = [block["text"] for block in claude_code.system()]
    assert all(text in system["content"] for text in instructions)
    placed = [{"role": "system", "content": claude_code.MODE}]
    assert (rest, claude_code.MODE in system["content"]) == ((placed, False) if name == "efforts" else ([], True))
    assert claude_code.REMINDER in json.dumps(user, ensure_ascii=False).replace("\\n", "\n")
    functions = [tool["function"] for tool in sent["tools"]]
    given = claude_code.tools()
    assert [function["name"] for function in functions] == list(claude_code.NAMES)
    assert [function["parameters"] for function in functions] == [tool["input_schema"] for tool in given]
    assert [function["description"] for function in functions] == [tool["description"] for tool in given]
    assert len(sent["user"]) == 64
    assert b"cache_control" not in seen.body
    assert not {"system", "metadata", "context_management", "output_config"} & set(sent)
    said = places(reply)
    assert {"context_management", "cache_control"} <= said["dropped"]
    assert "metadata.user_id" in said["translated"]
    assert "output_config.effort" in said["dropped" if name == "plain" else "translated"]


@each_model
async def test_thinking(desk: Desk, name: str) -> None:
    """Adaptive thinking of medium effort is told to each provider as it knows it, and to the plain one not at all."""
    _, seen = await ask(desk, name, claude_code.first_turn(), reads_and_greps)

    told = {member: seen.json.get(member) for member in ("thinking", "reasoning_effort")}
    assert told == {
        "plain": {"thinking": None, "reasoning_effort": None},
        "remembers": {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        "efforts": {"thinking": None, "reasoning_effort": "medium"},
    }[name]  # fmt: skip


@each_model
async def test_to_the_end(desk: Desk, name: str) -> None:
    """Thoughts, words and three calls come back as blocks; their results reach the provider; the last word comes."""
    turn = claude_code.first_turn()
    first, _ = await ask(desk, name, turn, reads_and_greps)
    receipt = await desk.receipt(first)
    content = blocks_of(first)
    calls = [block for block in content if block["type"] == "tool_use"]
    history = [*turn, {"role": "assistant", "content": content}, claude_code.results(calls)]

    last, seen = await ask(desk, name, history, lambda _: [R(), T("Done."), FIN(), U(12_100, 3), DONE])

    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use", "tool_use"]
    assert (content[0]["thinking"], content[1]["text"]) == ("Both files.", "Looking.")
    assert [call["input"] for call in calls] == [{"path": "a"}, {"path": "b"}, {}]
    assert items(first)[-2]["delta"]["stop_reason"] == "tool_use"
    assert (receipt["prompt_tokens"], receipt["cached_tokens"], receipt["reasoning_tokens"]) == (12_000, 9000, 30)
    made = calls_in(seen.json, "openai")
    assert [call[:2] for call in made] == [("Read", {"path": "a"}), ("Read", {"path": "b"}), ("Grep", {})]
    assert made[0][2] == "1\timport this"
    assert made[1][2].endswith("No such file")
    assert f"data:image/png;base64,{claude_code.PNG}".encode() in seen.body
    assert seen.json["messages"][2].get("reasoning_content") == ("Both files." if name == "remembers" else None)
    assert ("messages[2].content[0]" in places(last)["dropped"]) == (name != "remembers")
    assert events(last)[-2:] == ["message_delta", "message_stop"]
    assert blocks_of(last) == [{"type": "text", "text": "Done."}]
