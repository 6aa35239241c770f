"""What a provider of Anthropic's dialect says, for tests of what is understood of it."""

from __future__ import annotations

import json
from typing import Any

from gateway.dialects.anthropic_events import AnthropicReader
from gateway.dialects.neutral import AnswerEvent
from gateway.wire.sse import FrameSplitter
from tests.support.notation import event

CITATION = {"type": "web_search_result_location", "url": "https://a.test", "title": "A", "cited_text": "c"}


def hear(reader: AnthropicReader, *pieces: bytes) -> list[AnswerEvent]:
    """What *reader* makes of *pieces*, last words included if the answer is complete."""
    splitter = FrameSplitter(1 << 20)
    said: list[AnswerEvent] = []
    for piece in pieces:
        for each in splitter.feed(piece):
            said += reader.take(each)
    return [*said, *reader.end()] if reader.complete else said


def delta(index: int, **members: Any) -> bytes:
    """A content_block_delta with any members."""
    payload = {"type": "content_block_delta", "index": index, "delta": members}
    return event("content_block_delta", payload)


def body(*content: Any, **members: Any) -> bytes:
    """A JSON answer."""
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": list(content)}
    message |= {"stop_reason": "end_turn", "stop_sequence": None}
    message |= {"usage": {"input_tokens": 7, "output_tokens": 3}}
    return json.dumps({**message, **members}).encode()
