"""Rules for tools in the running gateway: what may be offered, and what an answer may call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from tests.support.acts import Status
from tests.support.client import Reply
from tests.support.config import CANARY, Config, standard
from tests.support.frames import blocks, chat, messages, named, parsed
from tests.support.gateway import CHAT, MESSAGES, PLAIN, Gateway
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    HANG,
    MD,
    MS,
    MX,
    TC,
    Dialect,
    R,
    T,
    U,
    chunk,
    json_answer,
)
from tests.support.provider import FakeProvider

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("tools")]

KEY_RULED = f"anm-sk-{CANARY}-ruled"
RULES = {
    "allow": ["read", "pay", "drop_*", "mcp__hub__*"],
    "deny": ["drop_*"],
    "arguments": [{"tool": "pay", "path": "amount", "max": 100, "required": True}],
}
COUNT = f"{MESSAGES}/count_tokens"
PLAYGROUND = "/anoman/v1/playground/run"


@dataclass
class Place:
    gateway: Gateway
    provider: FakeProvider

    async def post(self, path: str, payload: dict[str, Any]) -> Reply:
        return await self.gateway.client(KEY_RULED).request("POST", path, payload)

    async def row(self, reply: Reply) -> dict[str, Any]:
        """The line that tells how *reply*'s request ended."""
        request_id = reply.headers.get("x-request-id")
        return await self.gateway.line(lambda line: line.get("request_id") == request_id and "outcome" in line)


def config(base_url: str) -> Config:
    out = standard(base_url)
    out["policies"] = {"tools": {"tools": RULES}}
    out["keys"][KEY_RULED] = {"tenant": "ruled", "tier": "enterprise", "policy": "tools"}
    return out


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_place() -> AsyncIterator[Place]:
    async with FakeProvider() as provider, Gateway(config(provider.base_url), flags=PLAIN) as gateway:
        yield Place(gateway, provider)


@pytest.fixture
def place(module_place: Place) -> Place:
    module_place.provider.requests.clear()
    return module_place


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def asked(path: str, *names: str, stream: bool = False) -> dict[str, Any]:
    """A request of *path* that offers the tools *names*."""
    if path == CHAT:
        return chat("m", stream=stream, tools=[function(name) for name in names])
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
    if path == COUNT:
        return {"model": "claude", "messages": [{"role": "user", "content": "Hi"}], "tools": tools}
    return messages("claude", stream=stream, tools=tools)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, MESSAGES, COUNT])
async def test_a_denied_definition(place: Place, path: str, stream: bool) -> None:
    """It is a plain 403 that names its place, whatever was asked for; no provider hears of it, and it costs nothing."""
    reply = await place.post(path, asked(path, "read", "drop_all", stream=stream))
    row = await place.row(reply)

    error = reply.json["error"]
    assert (reply.status, error["code"], reply.headers.get("x-should-retry")) == (403, "tool_denied", "false")
    assert error["message"] == "tools[1]: The tool is not allowed: the policy denies its name."
    assert error["type"] == ("invalid_request_error" if path == CHAT else "permission_error")
    assert (row["outcome"], row["status"], row["error_code"]) == ("rejected", 403, "tool_denied")
    assert (row["attempts"], row["cost_usd"], place.provider.requests) == ([], "0.000000", [])


async def test_an_unknown_definition(place: Place) -> None:
    """Where there is a list of what is allowed, nothing else is; the error repeats no name."""
    reply = await place.post(CHAT, asked(CHAT, "delete_everything"))

    assert (reply.status, reply.json["error"]["param"]) == (403, "tools[0]")
    assert b"delete_everything" not in reply.body


async def test_a_panel(place: Place) -> None:
    """A run of the playground is under the same rules."""
    panels = [{"id": "a", "model": "m", "tools": [function("drop_all")]}]

    reply = await place.post(PLAYGROUND, {**chat("m", stream=False), "panels": panels})

    assert (reply.status, reply.json["error"]["code"]) == (403, "tool_denied")


async def test_a_server_whose_tools_are_not_named(place: Place) -> None:
    """What it has could be denied, and would run before it is seen."""
    payload = messages("claude", mcp_servers=[{"type": "url", "url": "https://hub.test", "name": "hub"}])

    reply = await place.post(MESSAGES, payload)

    assert reply.status == 403
    assert reply.json["error"]["message"].startswith("mcp_servers[0].tool_configuration.allowed_tools: ")


# -- whole answers --

ALLOWED = ("pay", {"amount": 7})
TOO_MUCH = ("pay", {"amount": 700})


def answer(*calls: tuple[str, Any], dialect: Dialect) -> Status:
    """A JSON answer of a provider of *dialect* that calls tools."""
    if dialect == "anthropic":
        blocks = [
            {"type": "tool_use", "id": f"t{at}", "name": name, "input": said} for at, (name, said) in enumerate(calls)
        ]
        return json_answer("", (7, 5), dialect=dialect, content=blocks, stop_reason="tool_use")
    called = [
        {"id": f"t{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(said)}}
        for at, (name, said) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": called}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json_answer("", (7, 5), choices=[choice])


@dataclass(frozen=True)
class Way:
    """An endpoint, a model behind it, and the dialect of that model's provider."""

    path: str
    model: str
    dialect: Dialect
    place: str  # of the second call of an answer


WAYS = {
    "chat": Way(CHAT, "m", "openai", "choices[0].message.tool_calls[1]"),
    "chat-abroad": Way(CHAT, "chat-abroad", "anthropic", "choices[0].message.tool_calls[1]"),
    "messages": Way(MESSAGES, "claude", "anthropic", "content[1]"),
    "messages-abroad": Way(MESSAGES, "messages-abroad", "openai", "content[1]"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def wanted(way: Way, stream: bool = False) -> dict[str, Any]:
    return {**asked(way.path, "read", "pay", stream=stream), "model": way.model}


async def test_an_answer_that_calls_what_is_allowed(place: Place, way: Way) -> None:
    """It is the client's as it was."""
    place.provider.script(way.model, [answer(ALLOWED, dialect=way.dialect)])

    reply = await place.post(way.path, wanted(way))

    assert (reply.status, b"amount" in reply.body) == (200, True)


@pytest.mark.parametrize("denied", [TOO_MUCH, ("drop_all", {}), ("pay", {})])
async def test_an_answer_that_calls_what_is_denied(place: Place, way: Way, denied: tuple[str, Any]) -> None:
    """It is a 403 that names the tool and the place of the call and no argument; it was made, so it is paid for."""
    place.provider.script(way.model, [answer(ALLOWED, denied, dialect=way.dialect)])

    reply = await place.post(way.path, wanted(way))
    row = await place.row(reply)

    error = reply.json["error"]
    assert (reply.status, error["code"], reply.headers.get("x-should-retry")) == (403, "tool_denied", "false")
    assert error["message"].startswith(f"The tool {denied[0]} that the answer calls is not allowed: ")
    assert "700" not in error["message"]
    assert (row["outcome"], row["status"], row["error_code"]) == ("interrupted", 403, "tool_denied")
    assert (row["failure_class"], row["failure_reason"]) == ("policy_stop", "tool_denied")
    assert (row["prompt_tokens"], row["completion_tokens"], row["cost_usd"]) == (7, 5, "0.0000675")
    if way.path == CHAT:
        assert error["param"] == way.place


# -- streams --


def told(*calls: tuple[str, str], dialect: Dialect, text: str = "") -> list[Any]:
    """A stream of a provider of *dialect* that says "Look", calls tools and says *text* before the last piece."""
    out: list[Any]
    if dialect == "anthropic":
        out = [MS(7), CBS(0), CBD(0, "Look"), CBX(0)]
        for at, (name, arguments) in enumerate(calls, start=1):
            out += [CBS(at, "tool_use", name=name), *([CBJ(at, arguments[:5]), CBJ(at, arguments[5:])]), CBX(at)]
        return [*out, MD("tool_use", 9), MX]
    out = [R(), T("Look")]
    for at, (name, arguments) in enumerate(calls):
        out += [TC(at, name=name), TC(at, arguments[:5]), *([T(text)] if text else []), TC(at, arguments[5:])]
    return [*out, FIN("tool_calls"), U(7, 9), DONE]


def heard(reply: Reply) -> list[str]:
    """A stream in words: texts, calls as `name(arguments)`, and how it ended."""
    out: list[str] = []
    for name, item in named(blocks(reply.body)):
        if not isinstance(item, dict):
            out.append(item)
        elif name == "error" or "error" in item:
            out.append(f"{item['error']['code']} {item['error']['_anoman']['failure_class']}")
        elif name == "content_block_start" and item["content_block"]["type"] == "tool_use":
            out.append(f"{item['content_block']['name']}(")
        elif name == "content_block_delta":
            out.append(item["delta"].get("text", item["delta"].get("partial_json")))
        elif name is None:
            delta = item["choices"][0]["delta"]
            for call in delta.get("tool_calls") or ():
                out.append(f"{call['function']['name']}(" if call["function"].get("name") else "")
                out.append(call["function"].get("arguments") or "")
            out.append(delta.get("content") or "")
    return [word for word in out if word]


PAID = '{"amount":7}'


async def test_a_stream_that_calls_what_is_allowed(place: Place, way: Way) -> None:
    """The calls reach the client, those with ruled arguments in one piece."""
    place.provider.script(way.model, told(("pay", PAID), ("read", PAID), dialect=way.dialect))

    reply = await place.post(way.path, wanted(way, stream=True))
    row = await place.row(reply)

    words = ["Look", "pay(", PAID, "read(", PAID[:5], PAID[5:]]
    assert heard(reply) == (words if way.path == MESSAGES else [*words, "[DONE]"])
    assert (row["outcome"], row["status"]) == ("completed", 200)
    assert b'"policy":{"status":"pass"}' in reply.body


@pytest.mark.parametrize(("name", "arguments"), [("drop_all", "{}"), ("pay", '{"amount":700}'), ("pay", '{"amo')])
async def test_a_stream_that_calls_what_is_denied(place: Place, way: Way, name: str, arguments: str) -> None:
    """
    What comes before it has left, then the typed frame ends the stream: nothing of the call is in it. What had come is
    paid for, and the provider is not to blame.
    """
    script = told(("read", PAID), (name, arguments), ("read", PAID), dialect=way.dialect)
    place.provider.script(way.model, script)

    reply = await place.post(way.path, wanted(way, stream=True))
    row = await place.row(reply)

    words = ["Look", "read(", PAID[:5], PAID[5:], "tool_denied policy_stop"]
    assert (reply.status, reply.ended_properly) == (200, True)
    assert heard(reply) == (words if way.path == MESSAGES else [*words, "[DONE]"])
    assert b":700" not in reply.body
    assert b'"message":"The tool %b that the answer calls is not allowed: ' % name.encode() in reply.body
    assert (row["outcome"], row["failure_class"], row["error_code"]) == ("interrupted", "policy_stop", "tool_denied")
    assert (row["completion_tokens"] > 0, row["cost_usd"] > "0.00") == (True, True)
    assert row["attempts"][0].endswith(":cancelled")
    assert "policy: block" in row["guards"][0]


async def test_the_provider_is_left_at_once(place: Place, way: Way) -> None:
    """A denied call closes its connection: nobody has to pay for the rest."""
    script = told(("drop_all", "{}"), dialect=way.dialect)
    end = 3 if way.dialect == "openai" else -2
    place.provider.script(way.model, [*script[:end], *([TC(0, "{}")] if way.dialect == "openai" else []), HANG])

    reply = await place.post(way.path, wanted(way, stream=True))
    await place.provider.all_gone()

    assert "tool_denied policy_stop" in heard(reply)


async def test_a_call_in_the_last_chunk(place: Place) -> None:
    """Some providers say a whole call with the end of the answer, and it is judged before that is settled."""
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "drop_all", "arguments": "{}"}}
    place.provider.script("m", [R(), T("Look"), chunk({"tool_calls": [call]}, "tool_calls"), U(7, 9), DONE])

    reply = await place.post(CHAT, wanted(WAYS["chat"], stream=True))
    row = await place.row(reply)

    assert heard(reply) == ["Look", "tool_denied policy_stop", "[DONE]"]
    assert (row["outcome"], row["completion_tokens"], row["usage_basis"]) == ("interrupted", 9, "provider_final")


async def test_text_goes_on(place: Place) -> None:
    """Text does not wait for a call whose arguments are not whole."""
    place.provider.script("m", told(("pay", PAID), dialect="openai", text="meanwhile"))

    reply = await place.post(CHAT, wanted(WAYS["chat"], stream=True))

    assert heard(reply) == ["Look", "meanwhile", "pay(", PAID, "[DONE]"]


async def test_a_panel_that_calls_what_is_denied(place: Place) -> None:
    """Its frame ends that panel, and the other goes on."""
    place.provider.script("m", told(("drop_all", "{}"), dialect="openai"))
    place.provider.script("chat-abroad", told(("read", "{}"), dialect="anthropic"))
    panels = [{"id": "a", "model": "m"}, {"id": "b", "model": "chat-abroad"}]

    reply = await place.post(PLAYGROUND, {**chat("m", stream=True), "panels": panels})

    frames = [item for item in parsed(blocks(reply.body)) if isinstance(item, dict)]
    assert [item["error"]["code"] for item in frames if item["panel"] == "a" and "error" in item] == ["tool_denied"]
    assert [item for item in frames if item["panel"] == "b" and "error" in item] == []
    assert b'"read"' in reply.body


@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_without_rules(place: Place, way: Way, stream: bool) -> None:
    """Its calls and answers are as they were."""
    script = told(("drop_all", "{}"), dialect=way.dialect)
    place.provider.script(way.model, script if stream else [answer(TOO_MUCH, dialect=way.dialect)])
    payload = {**asked(way.path, "drop_all", stream=stream), "model": way.model}

    reply = await place.gateway.client().request("POST", way.path, payload)

    assert (reply.status, b"tool_denied" in reply.body) == (200, False)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_call(place: Place, stream: bool) -> None:
    """One that ends with a denied call is not kept: it can be made again under its name."""
    script = told(("drop_all", "{}"), dialect="openai") if stream else [answer(TOO_MUCH, dialect="openai")]
    place.provider.script("m", script)
    client = place.gateway.client(KEY_RULED, **{"Idempotency-Key": f"denied-{stream}"})

    replies = [await client.request("POST", CHAT, wanted(WAYS["chat"], stream=stream)) for _ in range(2)]

    assert [b"tool_denied" in reply.body for reply in replies] == [True, True]
    assert len(place.provider.requests) == 2
