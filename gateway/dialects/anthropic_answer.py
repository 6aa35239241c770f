"""A whole Anthropic `message` from neutral events, and what its stream shares with it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from gateway.dialects.anthropic_usage import HOUR
from gateway.dialects.base import Journey
from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Called,
    Cited,
    Counted,
    Finished,
    Pictured,
    Reason,
    Refused,
    Said,
    Thought,
)
from gateway.dialects.tool_arguments import read_object
from gateway.wire.body import fits

_STOP_REASONS: dict[Reason, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "context_window": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "refusal": "refusal",
    "pause": "pause_turn",
}


class LastDelta:
    """How the answer ends and what it cost, gathered from events as they come: what `message_delta` will say."""

    __slots__ = ("_counts", "_finished", "_refused")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._finished = Finished("stop")
        self._refused = False

    def take(self, event: AnswerEvent) -> None:
        """Note *event*, as far as it says anything of the end."""
        if isinstance(event, Finished):
            self._finished = event
        elif isinstance(event, Refused):
            self._refused = True
        elif isinstance(event, Counted):
            for name in event.__struct_fields__:
                if (value := getattr(event, name)) is not None:
                    self._counts[name] = value

    def delta(self) -> dict[str, Any]:
        """`stop_reason` and `stop_sequence`."""
        reason = self._finished.reason
        if reason == "stop" and self._refused:  # OpenAI says "stop" behind a refusal's text
            reason = "refusal"
        sequence = self._finished.stop_sequence if reason == "stop_sequence" else None
        return {"stop_reason": _STOP_REASONS[reason], "stop_sequence": sequence}

    def usage(self) -> dict[str, Any]:
        """What has been counted, without members for what has not: the lane has estimates for those."""
        said = self._counts
        cached, written = said.get("cached_tokens"), said.get("cache_write_tokens")
        out: dict[str, Any] = {}
        if (prompt := said.get("prompt_tokens")) is not None:
            cached = None if cached is None else min(cached, prompt)
            written = None if written is None else min(written, prompt - (cached or 0))
            out["input_tokens"] = prompt - (cached or 0) - (written or 0)
        if cached is not None:
            out["cache_read_input_tokens"] = cached
        if written is not None:
            out["cache_creation_input_tokens"] = written
            if (kept := said.get("cache_write_1h_tokens")) is not None:
                kept = min(kept, written)
                out["cache_creation"] = {"ephemeral_5m_input_tokens": written - kept, HOUR: kept}
        if (completion := said.get("completion_tokens")) is not None:
            out["output_tokens"] = completion
            if (thinking := said.get("reasoning_tokens")) is not None:
                out["output_tokens_details"] = {"thinking_tokens": min(thinking, completion)}
        return out


class _Block(Struct):
    """A block in the making: `words` are its text, its thinking or its JSON."""

    head: dict[str, Any]
    words: list[str]
    citations: list[Any]
    signature: str = ""

    def render(self) -> dict[str, Any]:
        kind, text = self.head["type"], "".join(self.words)
        if kind == "text":
            return {**self.head, "text": text, **({"citations": self.citations} if self.citations else {})}
        if kind == "thinking":
            return {**self.head, "thinking": text, "signature": self.signature}
        return {**self.head, "input": read_object(text)} if kind == "tool_use" else self.head


class Blocks:
    """The content of a whole message: the same blocks, in the same order, as a stream of the same events has."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._prose: _Block | None = None  # the text or thinking that goes on
        self._calls: dict[int, _Block] = {}

    def take(self, event: AnswerEvent) -> None:
        """Add what *event* says."""
        if isinstance(event, Said | Refused):
            self._going_on("text").words.append(event.text)
        elif isinstance(event, Pictured):
            self._going_on("text").words.append(picture_text(event))
        elif isinstance(event, Thought):
            self._think(event)
        elif isinstance(event, Cited):
            if fits(event.citation):
                self._going_on("text").citations.append(event.citation)
        elif isinstance(event, Called):
            self._prose = None
            self._calls[event.slot] = self._open({"type": "tool_use", "id": event.id, "name": event.name})
        elif isinstance(event, Argued) and event.slot in self._calls:
            self._calls[event.slot].words.append(event.text)

    def render(self) -> list[dict[str, Any]]:
        """The content."""
        return [block.render() for block in self._blocks]

    def _think(self, event: Thought) -> None:
        if event.text:
            self._going_on("thinking").words.append(event.text)
        if event.signature is not None:
            self._going_on("thinking").signature = event.signature
            self._prose = None
        if event.redacted is not None:
            self._prose = None
            self._open({"type": "redacted_thinking", "data": event.redacted})

    def _going_on(self, kind: str) -> _Block:
        if self._prose is None or self._prose.head["type"] != kind:
            self._prose = self._open({"type": kind})
        return self._prose

    def _open(self, head: dict[str, Any]) -> _Block:
        block = _Block(head, [], [])
        self._blocks.append(block)
        return block


def picture_text(event: Pictured) -> str:
    """A picture in Markdown: no block of an answer could hold it."""
    return f"\n![image](data:{event.media_type};base64,{event.data})\n"


def message(journey: Journey, content: list[dict[str, Any]], ending: dict[str, Any]) -> dict[str, Any]:
    """A `message` object, its id made of the request's, which is ours and unique."""
    return {
        "id": f"msg_{journey.request_id.removeprefix('req_')}",
        "type": "message",
        "role": "assistant",
        "model": journey.call.slug,
        "content": content,
        **ending,
    }
