"""Answers of Anthropic's dialect, as a client of OpenAI's hears them through its own lane."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.usage import Usage
from gateway.dialects.anthropic_events import AnthropicReader
from gateway.dialects.openai_chat import read_completion
from gateway.dialects.openai_chunks import OpenAIWriter
from gateway.wire.sse import FrameSplitter
from tests.support.notation import CBD, CBJ, CBS, CBX, MD, MS, MX, event
from tests.support.scale import examples
from tests.unit.dialects.conversations import Heard, check_openai, hear, journey, openai, openai_call, shape
from tests.unit.receipts import receipt

USAGE = {"input_tokens": 9, "cache_read_input_tokens": 1, "cache_creation_input_tokens": 4, "output_tokens": 16}
ENVELOPE = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}


def translated(*pieces: bytes) -> Heard:
    """What a client hears of an Anthropic stream that came in these reads."""
    reader, writer, splitter = AnthropicReader(), OpenAIWriter(journey(openai_call())), FrameSplitter(1 << 20)
    out = [b"".join(map(writer.write, reader.take(each))) for piece in pieces for each in splitter.feed(piece)]
    assert reader.complete
    out.append(b"".join(map(writer.write, reader.end())) + writer.end())
    heard = hear(openai(), [piece for piece in out if piece])
    check_openai(heard)
    return heard


def translated_body(content: list[dict[str, Any]], stop_reason: str = "end_turn") -> Any:
    """What a client gets of an Anthropic JSON answer."""
    body = json.dumps({**ENVELOPE, "content": content, "stop_reason": stop_reason, "usage": USAGE}).encode()
    writer = OpenAIWriter(journey(openai_call()))
    completion = read_completion(writer.whole(AnthropicReader().whole(body)), journey(openai_call(stream=False)))
    return json.loads(completion.render(receipt(usage=completion.usage, usage_basis=completion.basis)))


def test_tr_01_tr_02_tr_05_parallel_calls() -> None:
    """Indices dense from 0, arguments passed on as they came, `{}` once for the call that got none."""
    heard = translated(
        MS(7) + CBS(0) + CBD(0, "hi") + CBX(0) + CBS(1, "tool_use", name="a") + CBJ(1, '{"x":') + CBJ(1, "1}"),
        CBX(1) + CBS(2, "tool_use", name="b") + CBJ(2, "") + CBX(2) + MD("tool_use", 5) + MX,
    )

    assert shape(heard) == [
        "0:R", "0:hi", "0:TC0[]", '0:TC0[{"x":]', "0:TC0[1}]", "0:TC1[]", "0:TC1[{}]", "0:FIN(tool_calls)", "META",
        "[DONE]",
    ]  # fmt: skip


def test_use_05_counts() -> None:
    """Cumulative counts are not added up, and the prompt has its cached and written tokens."""
    start = MS(9, 1, cache_read_input_tokens=1, cache_creation_input_tokens=4)
    heard = translated(start + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", 3) + MD("end_turn", USAGE) + MX)
    whole = translated_body([{"type": "text", "text": "a"}])

    usage = heard.items[-3]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (14, 16)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 1, "cache_write_tokens": 4}
    assert usage == whole["usage"]
    assert heard.lane.measure()[1] == "provider_final"
    assert heard.lane.measure()[0].prompt_tokens == Usage(14).prompt_tokens


def test_an_answer_that_nobody_counted_is_estimated() -> None:
    """The placeholder of `message_start` is not taken for the answer's count."""
    heard = translated(MS(9, 8) + CBS(0) + CBD(0, "a") + CBX(0) + MD("end_turn", {}) + MX)

    assert heard.lane.measure() == (Usage(9, 1), "estimated")


words = st.sampled_from(["a", "Once ", "北🦀é", "\u2028", "\\", "\n", "data: [DONE]", "\ufeff", "\x00"])
URL = {"type": "web_search_result_location", "url": "https://a.test", "title": "A", "cited_text": "c"}


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, list[dict[str, Any]]]:
    """The content of an answer, as events and as blocks."""
    events, blocks = [], []
    kinds = st.sampled_from(["text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"])
    for index, kind in enumerate(draw(st.lists(kinds, max_size=6))):
        pieces = draw(st.lists(words, min_size=1, max_size=3))
        block, start, deltas = _block(kind, index, pieces)
        blocks.append(block)
        payloads = [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events += [CBS(index, kind, **start), *(event("content_block_delta", each) for each in payloads), CBX(index)]
    return b"".join(events), blocks


def _block(kind: str, index: int, pieces: list[str]) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    """A block, the members of its start, and its deltas."""
    whole = "".join(pieces)
    if kind == "text":
        said = [*({"text": piece} for piece in pieces), {"citation": URL}]
        return {"type": kind, "text": whole, "citations": [URL]}, {}, said
    if kind == "thinking":
        said = [*({"thinking": piece} for piece in pieces), {"signature": f"s{index}"}]
        return {"type": kind, "thinking": whole, "signature": f"s{index}"}, {}, said
    if kind == "redacted_thinking":
        return {"type": kind, "data": whole}, {"data": whole}, []
    call = {"id": f"id{index}", "name": f"f{index}"}
    arguments = json.dumps({"x": whole}, separators=(",", ":"))
    return {"type": kind, **call, "input": {"x": whole}}, call, [{"partial_json": arguments}]


@given(answers(), st.lists(st.integers(0, 3000), max_size=6))
@settings(max_examples=examples(100), deadline=None)
def test_stream_and_body_are_the_same_answer(answer: tuple[bytes, list[dict[str, Any]]], cuts: list[int]) -> None:
    """A stream in any reads and a JSON answer of the same content give a client the same message and usage."""
    content, blocks = answer
    stream = MS(9) + content + MD("tool_use", USAGE) + MX
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})

    heard = translated(*(stream[start:end] for start, end in pairwise(places)))
    whole = translated_body(blocks, "tool_use")

    assert _streamed(heard.items) == _whole(whole["choices"][0]["message"])
    assert heard.items[-3]["usage"] == whole["usage"]


def _streamed(items: list[Any]) -> dict[str, Any]:
    """What the chunks say, all texts and lists joined; arguments as values."""
    out: dict[str, Any] = {}
    arguments: dict[int, str] = {}
    for item in items[:-2]:
        for name, value in item["choices"][0]["delta"].items():
            for piece in value if name == "tool_calls" else ():
                arguments[piece["index"]] = arguments.get(piece["index"], "") + piece["function"]["arguments"]
            if name not in ("tool_calls", "role"):
                out[name] = out[name] + value if name in out else value
    assert sorted(arguments) == list(range(len(arguments)))
    return {**out, "arguments": [json.loads(arguments[index]) for index in sorted(arguments)]}


def _whole(message: dict[str, Any]) -> dict[str, Any]:
    """The same of a message."""
    calls = message.pop("tool_calls", [])
    members = {name: value for name, value in message.items() if name != "role" and value is not None}
    return {"content": "", **members, "arguments": [json.loads(call["function"]["arguments"]) for call in calls]}
