"""What is translated and translated back says the same: calls from client to provider, answers the other way."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import DialectName
from gateway.core.usage import Usage
from gateway.dialects.base import Completion
from gateway.dialects.neutral import Image, Prompt, Target, Text, ToolCall, ToolResult
from gateway.dialects.pairs import open_lane, read_completion, translated_body
from gateway.dialects.registry import DIALECTS
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, U
from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    Heard,
    anthropic_call,
    check_anthropic,
    check_openai,
    hear,
    journey,
    openai_call,
)
from tests.unit.dialects.translated import Told, told
from tests.unit.receipts import receipt

TARGET = Target("theirs", stream=False, max_output_tokens=64_000)
PNG = "iVBORw0KGgo="

words = st.sampled_from(["a", "Once upon", "北🦀é", "line\nline", '{"x": 1}', " padded.", "a\u2028", "\\"])
arguments = st.sampled_from(["{}", '{"a":1.50}', '{"city":"Jakarta","n":[1,{"b":null}]}', '{"t":"\\u00e9 \\" \\\\"}'])
counts = st.integers(1, 10_000)  # none is a placeholder, for which there is an estimate


# -- calls --


@st.composite
def chat_calls(draw: st.DrawFn) -> dict[str, Any]:
    """A chat call with what both dialects can say: a conversation with tools, pictures and instructions."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": text} for text in draw(st.lists(words, max_size=2, unique=True))
    ]
    called = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(st.one_of(words, _parts()))})
        calls = [
            {"id": f"call_{called + at}", "type": "function", "function": {"name": "f", "arguments": draw(arguments)}}
            for at in range(draw(st.integers(0, 2)))
        ]
        called += len(calls)
        said = draw(words) if not calls or draw(st.booleans()) else None
        messages.append({"role": "assistant", "content": said, **({"tool_calls": calls} if calls else {})})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": draw(words)} for call in calls]
    messages.append({"role": "user", "content": draw(words)})
    tool = {"name": "f", "description": "Does f.", "parameters": {"type": "object", "properties": {"a": {}}}}
    more: dict[str, Any] = {"tools": [{"type": "function", "function": tool}], "max_tokens": draw(st.integers(1, 9999))}
    more |= draw(st.fixed_dictionaries({}, optional={
        "tool_choice": st.sampled_from(["auto", "required", {"type": "function", "function": {"name": "f"}}]),
        "parallel_tool_calls": st.booleans(),
        "stop": st.sampled_from([["END"], ["a", "b"]]),
        "temperature": st.sampled_from([0, 0.25, 1]),
        "user": st.sampled_from(["u-1"]),
    }))  # fmt: skip
    return {"model": "ours", "messages": messages, **more}


@st.composite
def _parts(draw: st.DrawFn) -> list[dict[str, Any]]:
    url = draw(st.sampled_from([f"data:image/png;base64,{PNG}", "https://a.test/a.png"]))
    return [{"type": "text", "text": draw(words)}, {"type": "image_url", "image_url": {"url": url}}]


def call_of(dialect: DialectName, body: bytes) -> Call:
    return DIALECTS[dialect].read_call(body, CallOptions(), ())


def gist(prompt: Prompt) -> dict[str, Any]:
    """What *prompt* says, however it is cut into messages and parts."""
    turns: list[tuple[str, Any]] = []
    for message in prompt.messages:
        for part in message.parts:
            if isinstance(part, Text) and turns and turns[-1][0] == f"{message.role} says":
                turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n{part.text}")
            elif isinstance(part, Text):
                turns.append((f"{message.role} says", part.text))
            elif isinstance(part, Image):
                turns.append(("shows", (part.url, part.media_type, part.data)))
            elif isinstance(part, ToolCall):
                turns.append(("calls", (part.id, part.name, json.loads(part.arguments))))
            elif isinstance(part, ToolResult):
                turns.append(("gives", (part.call_id, [text.text for text in part.parts if isinstance(text, Text)])))
    return {
        "turns": turns,
        "system": "\n\n".join(text.text for text in prompt.system),
        "tools": [(tool.name, tool.description, json.loads(bytes(tool.parameters or b"{}"))) for tool in prompt.tools],
        "choice": prompt.tool_choice,
        "parallel": prompt.parallel_tools,
        "limits": (prompt.max_tokens, prompt.stop, prompt.user),
        "sampling": {name: json.loads(bytes(value)) for name, value in prompt.sampling.items()},
    }


@settings(max_examples=examples(150), deadline=None)
@given(body=chat_calls())
def test_a_chat_call(body: dict[str, Any]) -> None:
    """Asked of an Anthropic provider that is a gateway in front of OpenAI's, a chat call arrives as it was."""
    call = call_of("openai_chat", json.dumps(body).encode())
    theirs, _ = translated_body(call, DIALECTS["anthropic_messages"], TARGET)
    back, _ = translated_body(call_of("anthropic_messages", theirs), DIALECTS["openai_chat"], TARGET)

    before, after = (
        gist(DIALECTS["openai_chat"].read_prompt(call_of("openai_chat", each)))
        for each in (json.dumps(body).encode(), back)
    )
    if before["choice"] is None and before["parallel"] is not None:  # Anthropic says the one only within the other
        before["choice"] = after["choice"]
    if before["parallel"] is True:  # both dialects' default
        before["parallel"] = after["parallel"]
    assert before == after


@settings(max_examples=examples(150), deadline=None)
@given(body=chat_calls())
def test_a_messages_call(body: dict[str, Any]) -> None:
    """The other way about: what an Anthropic client says arrives at an Anthropic provider behind OpenAI's dialect."""
    call = call_of("openai_chat", json.dumps(body).encode())
    original, _ = translated_body(call, DIALECTS["anthropic_messages"], TARGET)
    theirs, _ = translated_body(call_of("anthropic_messages", original), DIALECTS["openai_chat"], TARGET)
    back, _ = translated_body(call_of("openai_chat", theirs), DIALECTS["anthropic_messages"], TARGET)

    before, after = (
        gist(DIALECTS["anthropic_messages"].read_prompt(call_of("anthropic_messages", each)))
        for each in (original, back)
    )
    assert before == after


# -- answers --


def spoken(text: list[str], calls: list[tuple[str, list[str]]]) -> tuple[bytes, bytes]:
    """The same answer of an OpenAI and of an Anthropic provider, but for its counts and its end."""
    chat = R() + b"".join(map(T, text))
    messages = b""
    if text:
        messages += CBS(0) + b"".join(CBD(0, word) for word in text) + CBX(0)
    for at, (name, pieces) in enumerate(calls):
        chat += TC(at, name=name, id=f"id_{at}") + b"".join(TC(at, piece) for piece in pieces)
        block = at + bool(text)
        messages += CBS(block, "tool_use", id=f"id_{at}", name=name)
        messages += b"".join(CBJ(block, piece) for piece in pieces) + CBX(block)
    return chat, messages


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A whole answer of an OpenAI and of an Anthropic provider that says and counts the same."""
    text = draw(st.lists(words, max_size=4))
    calls = []
    for _ in range(draw(st.integers(0, 3))):
        whole = draw(arguments)
        cut = draw(st.integers(0, len(whole)))
        calls.append((draw(st.sampled_from(["f", "g"])), [] if whole == "{}" else [whole[:cut], whole[cut:]]))
    chat, messages = spoken(text, calls)
    prompt, completion, cached, thought = (draw(counts) for _ in range(4))
    cached, thought = min(cached, prompt), min(thought, completion)
    why = (
        ("tool_calls", "tool_use") if calls else draw(st.sampled_from([("stop", "end_turn"), ("length", "max_tokens")]))
    )
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    details |= {"completion_tokens_details": {"reasoning_tokens": thought}}
    told_thought = {"output_tokens": completion, "output_tokens_details": {"thinking_tokens": thought}}
    return (
        chat + FIN(why[0]) + U(prompt, completion, **details) + DONE,
        MS(prompt - cached, 1, cache_read_input_tokens=cached) + messages + MD(why[1], told_thought) + MX,
    )


def as_chat(stream: bytes, provider: DialectName) -> Heard:
    heard = hear(open_lane(journey(openai_call(), speaks=provider)), [stream])
    check_openai(heard)
    return heard


def as_messages(stream: bytes, provider: DialectName) -> Heard:
    heard = hear(open_lane(journey(anthropic_call(), speaks=provider)), [stream])
    check_anthropic(heard)
    return heard


def heard_of(heard: Heard) -> tuple[Told, Usage]:
    assert heard.end == "finished"
    client = told(heard)
    # In one of the dialects blocks of text count along, and arguments of none may be "".
    client.calls = {at: [*call[:2], call[2] or "{}"] for at, call in enumerate(client.calls.values())}
    return client, heard.lane.measure()[0]


@settings(max_examples=examples(100), deadline=None)
@given(answer=answers())
def test_streams(answer: tuple[bytes, bytes]) -> None:
    """Through two gateways that each translate, a client hears what it hears of the provider itself."""
    chat, messages = answer
    straight_chat, straight_messages = as_chat(chat, "openai_chat"), as_messages(messages, "anthropic_messages")
    bent_chat = as_chat(as_messages(chat, "openai_chat").out, "anthropic_messages")
    bent_messages = as_messages(as_chat(messages, "anthropic_messages").out, "openai_chat")

    assert heard_of(bent_chat) == heard_of(straight_chat)
    ours, theirs = heard_of(bent_messages), heard_of(straight_messages)
    assert ours[0] == theirs[0]
    assert ours[1].prompt_tokens == theirs[1].prompt_tokens
    assert (ours[1].completion_tokens, ours[1].cached_tokens) == (theirs[1].completion_tokens, theirs[1].cached_tokens)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A whole chat completion."""
    calls = [
        {"id": f"id_{at}", "type": "function", "function": {"name": "f", "arguments": draw(arguments)}}
        for at in range(draw(st.integers(0, 2)))
    ]
    text = draw(words) if not calls or draw(st.booleans()) else None
    message = {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}
    prompt, completion = draw(counts), draw(counts)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    usage["prompt_tokens_details"] = {"cached_tokens": min(draw(counts), prompt)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@settings(max_examples=examples(100), deadline=None)
@given(body=bodies())
def test_bodies(body: dict[str, Any]) -> None:
    """A JSON answer keeps its text, its calls, its reason and its counts."""
    there = journey(anthropic_call(stream=False), speaks="openai_chat")
    message = _rendered(read_completion(json.dumps(body).encode(), there))
    back = json.loads(_rendered(read_completion(message, journey(openai_call(), speaks="anthropic_messages"))))

    before, after = body["choices"][0], back["choices"][0]
    assert (after["message"]["content"], after["finish_reason"]) == (
        before["message"]["content"],
        before["finish_reason"],
    )
    assert after["message"].get("tool_calls") == before["message"].get("tool_calls")
    cached = back["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached == body["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert {name: back["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")} == {
        name: body["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")
    }


def _rendered(completion: Completion) -> bytes:
    return completion.render(receipt(usage=completion.usage, usage_basis=completion.basis))
