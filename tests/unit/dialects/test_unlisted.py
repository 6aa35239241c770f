"""Texts of answers in members that this version does not know: read all the same, whole or on a stream."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.notation import CBD, CBS, CBX, DONE, FIN, MD, MX, R, T, chunk, event
from tests.unit.dialects.conversations import anthropic, check_anthropic, check_openai, hear, openai
from tests.unit.dialects.test_editing import edited, screen, whole

MAIL = "kim@x.id"
LINK = {"type": "url_citation", "url_citation": {"title": f"of {MAIL}", "url": "https://x.id/@kim", "start_index": 1}}
MESSAGES: dict[str, dict[str, Any]] = {
    "arguments as an object": {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": {"to": MAIL}}}]},
    "arguments without a function": {"tool_calls": [{"index": 0, "name": "f", "arguments": json.dumps({"to": MAIL})}]},
    "calls as an object": {"tool_calls": {"function": {"name": "f", "arguments": json.dumps({"to": MAIL})}}},
    "refusal as a part": {"content": [{"type": "refusal", "refusal": MAIL}]},
    "parts that are strings": {"content": [MAIL]},
    "content as an object": {"content": {"type": "text", "text": MAIL}},
    "thoughts as an object": {"reasoning": {"text": MAIL}},
    "a summary in parts": {"reasoning_details": [{"type": "reasoning.summary", "summary": [{"text": MAIL}]}]},
    "titles of links": {"annotations": [LINK]},
    "the unknown": {"insight": {"deep": [{"said": MAIL}]}},
    "names of the unknown": {"insight": {MAIL: 1}},
    "numbers of the unknown": {"insight": {"n": 4111111111111111}},
}
BLOCKS: dict[str, dict[str, Any]] = {
    "a result": {"type": "mcp_tool_result", "tool_use_id": "t", "is_error": False, "content": MAIL},
    "a compaction": {"type": "compaction", "content": MAIL},
    "lines": {"type": "text_editor_code_execution_tool_result", "content": {"type": "x", "lines": [MAIL]}},
    "a page": {
        "type": "web_fetch_tool_result",
        "content": {"content": {"type": "document", "source": {"type": "text", "data": MAIL}}},
    },
    "a source": {"type": "search_result", "source": MAIL},
    "the unknown": {"type": "insight", "deep": {MAIL: 4111111111111111}},
}
DELTAS: dict[str, dict[str, Any]] = {
    "two texts": {"type": "thinking_delta", "text": "a", "thinking": f"so {MAIL} it is"},
    "a compaction": {"type": "compaction_delta", "content": f"so {MAIL} it is"},
    "the unknown": {"type": "insight_delta", "insight": {"said": MAIL}},
}
CHOICES: dict[str, dict[str, Any]] = {
    "probabilities": {"logprobs": {"content": [{"token": MAIL}]}},
    "a message": {"message": {"content": MAIL}},
    "a text": {"text": MAIL},
}
LONG = "4111111111111111"


def is_clean(out: bytes) -> bool:
    return MAIL.encode() not in out and LONG.encode() not in out


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_openai(message: dict[str, Any]) -> None:
    """A value leaves in no member of a message, nor of a delta, known or not."""
    choices = [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]
    body = whole("openai_chat", {"choices": choices}, screen())
    heard = hear(edited(openai(), screen()), [R(), chunk(message), FIN("stop", (7, 3)), DONE])

    check_openai(heard)
    assert heard.end == "finished"
    assert is_clean(json.dumps(body).encode())
    assert is_clean(heard.out)
    assert b"EMAIL_1]" in heard.out or b"CARD_1]" in heard.out


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_anthropic(block: dict[str, Any]) -> None:
    """A value leaves in no member of a block, known or not."""
    body = whole("anthropic_messages", {"content": [block]}, screen())
    start = event("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block})
    heard = hear(edited(anthropic(), screen(), "anthropic_messages"), [begun(), start, CBX(0), MD(usage=3), MX])

    check_anthropic(heard)
    assert heard.end == "finished"
    assert body["content"] == [heard.items[1]["content_block"]]
    assert is_clean(json.dumps(body).encode())
    assert is_clean(heard.out)
    assert body["content"] != [block]


@pytest.mark.parametrize("delta", DELTAS.values(), ids=DELTAS)
def test_anthropic_delta(delta: dict[str, Any]) -> None:
    """Each text of a delta runs on, whatever its member, and is held back by itself."""
    one = event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta})
    reads = [begun(), CBS(0, "thinking"), one, CBX(0), MD(usage=3), MX]
    heard = hear(edited(anthropic(), screen(), "anthropic_messages"), reads)

    assert heard.end == "finished"
    assert is_clean(heard.out)
    assert b"[EMAIL_1]" in heard.out


def test_unknown_text_in_pieces() -> None:
    """A text of a kind of delta that nobody here knows is read over its pieces, and stays of that kind."""
    deltas = [{"type": "compaction_delta", "content": piece} for piece in ("so k", "im@x", ".id", " it is")]
    reads = [event("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": one}) for one in deltas]
    lane = edited(anthropic(), screen(), "anthropic_messages")
    heard = hear(lane, [begun(), CBS(0, "compaction"), *reads, CBX(0), MD(usage=3), MX])

    left = [item["delta"] for item in heard.items if item["type"] == "content_block_delta"]
    assert "".join(delta["content"] for delta in left) == "so [EMAIL_1] it is"
    assert {delta["type"] for delta in left} == {"compaction_delta"}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_openai_choice(choice: dict[str, Any]) -> None:
    """A chunk without a text in its delta has none elsewhere, and no probabilities of tokens that are held back."""
    odd = chunk({}, choices=[{"index": 0, "delta": {}, "finish_reason": None, **choice}])
    heard = hear(edited(openai(), screen()), [R(), T("Hi"), odd, FIN("stop", (7, 3)), DONE])

    check_openai(heard)
    assert is_clean(heard.out)


def test_openai_members() -> None:
    """Members of a chunk or of a body that are not known are read; a frame that has one is no pattern for others."""
    results = [{"title": MAIL, "url": "https://x.id"}]
    said = [chunk({"content": word}, search_results=results) for word in ("Hi ", "you ", "there ") * 9]
    heard = hear(edited(openai(), screen()), [R(), *said, FIN("stop", (7, 3)), DONE])
    body = whole("openai_chat", {"search_results": results}, screen())

    check_openai(heard)
    assert is_clean(heard.out)
    assert body["search_results"] == [{"title": "[EMAIL_1]", "url": "https://x.id"}]


def test_anthropic_members() -> None:
    """What begins a message and what ends it have no text that was not read."""
    start = begun(content=[{"type": "text", "text": MAIL}], note=MAIL)
    end = {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": MAIL}, "usage": {}}
    reads = [start, CBS(1), CBD(1, "Hi"), CBX(1), event("message_delta", {**end, "usage": {"output_tokens": 3}}), MX]
    heard = hear(edited(anthropic(), screen(), "anthropic_messages"), reads)

    assert heard.end == "finished"
    assert is_clean(heard.out)
    assert heard.items[0]["message"]["content"] == [{"type": "text", "text": "[EMAIL_1]"}]


def test_no_text() -> None:
    """Names, ciphertext, base64 and links stay as they are: what looks like a value in them is none."""
    card = "4111111111111111"
    block = {
        "type": "x", "id": card, "signature": card, "name": card, "url": f"https://x.id/{card}",
        "source": {"type": "base64", "data": card}, "content": [{"encrypted_content": card}],
    }  # fmt: skip
    message = {"audio": {"id": card, "data": card}, "tool_calls": [{"id": card, "function": {"name": card}}]}

    assert whole("anthropic_messages", {"content": [block]}, screen())["content"] == [block]
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    out = whole("openai_chat", {"choices": choices}, screen())["choices"][0]["message"]
    assert (out["audio"], out["tool_calls"][0]["id"]) == (message["audio"], card)


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_stop(message: dict[str, Any]) -> None:
    """Where what is found ends the answer, the frame that has it is still one that can be read."""
    lane = edited(openai(), screen("block"))
    heard = hear(lane, [R(), chunk(message), FIN("stop", (7, 3)), DONE])

    assert lane.failure is not None
    assert is_clean(heard.out)
    assert heard.items  # each of them was JSON


def begun(**more: Any) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"input_tokens": 7, "output_tokens": 1}
    return event("message_start", {"type": "message_start", "message": {**message, "usage": usage, **more}})
