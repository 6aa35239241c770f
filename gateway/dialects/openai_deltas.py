"""What neutral events add to a message of OpenAI's dialect: the members of a delta, and of `usage`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from gateway.dialects.neutral import (
    AnswerEvent,
    Argued,
    Begin,
    Called,
    Cited,
    Counted,
    Finished,
    Likely,
    Pictured,
    Reason,
    Refused,
    Said,
    Thought,
)

# TR-23. A client cannot go on with a turn that its provider paused, so a pause is an end.
FINISH_REASONS: dict[Reason, str] = {
    "stop": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "context_window": "length",
    "tool_calls": "tool_calls",
    "refusal": "content_filter",
    "pause": "stop",
}


class Deltas:
    """Turns the events of one answer into deltas, in order.

    Thinking is `reasoning_content`, as DeepSeek has it. Signatures and ciphertexts are `reasoning_details`, and
    pictures `images`, as OpenRouter documents them: a client that sends a message back whole returns them too. What was
    signed is told by its length, so that several thoughts can be told apart again. The entries and those of
    `annotations` have an `index` besides, by which OpenAI's own library puts pieces together; it fails without one.

    Attributes:
        chars: Length of the text so far.
        thought_chars: Length of the reasoning since the last signature.
        note: Something that was left out, for the log.
    """

    def __init__(self) -> None:
        self.note: str | None = None
        self.chars = 0
        self.thought_chars = 0
        self._details = 0
        self._annotations = 0
        self._images = 0
        self._counts: dict[str, int] = {}

    def of(self, event: AnswerEvent) -> dict[str, Any] | None:
        """What *event* adds to the message; None when that is nothing."""
        make = _MAKERS.get(type(event))
        return make(self, event) if make is not None else None

    def finish_reason(self, event: Finished) -> str:
        if event.reason == "pause":
            self._remark("paused")
        return FINISH_REASONS[event.reason]

    def usage(self, event: Counted) -> dict[str, Any]:
        """All that has been counted by now: per member, the last explicit value."""
        counts = self._counts
        counts.update({name: value for name, value in structs.asdict(event).items() if value is not None})
        out: dict[str, Any] = {name: counts[name] for name in ("prompt_tokens", "completion_tokens") if name in counts}
        if len(out) == 2:
            out["total_tokens"] = sum(out.values())
        for name, members in _USAGE_DETAILS.items():
            if details := {member: counts[member] for member in members if member in counts}:
                out[name] = details
        return out

    def _begin(self, event: Begin) -> dict[str, Any]:
        return {"role": "assistant", "content": ""}

    def _said(self, event: Said) -> dict[str, Any] | None:
        self.chars += len(event.text)
        return {"content": event.text} if event.text else None

    def _refused(self, event: Refused) -> dict[str, Any] | None:
        return {"refusal": event.text} if event.text else None

    def _thought(self, event: Thought) -> dict[str, Any] | None:
        out: dict[str, Any] = {"reasoning_content": event.text} if event.text else {}
        details: list[dict[str, Any]] = []
        self.thought_chars += len(event.text)
        if event.signature is not None:
            signed, self.thought_chars = self.thought_chars, 0
            details.append(
                {"type": "reasoning.text", "text": "", "signature": event.signature, "text_length": signed}
            )
        if event.redacted is not None:
            details.append({"type": "reasoning.encrypted", "data": event.redacted})
        for detail in details:
            detail["index"] = self._details
            self._details += 1
        return {**out, "reasoning_details": details} if details else out or None

    def _called(self, event: Called) -> dict[str, Any]:
        function = {"name": event.name, "arguments": ""}
        return {"tool_calls": [{"index": event.slot, "id": event.id, "type": "function", "function": function}]}

    def _argued(self, event: Argued) -> dict[str, Any] | None:
        return {"tool_calls": [{"index": event.slot, "function": {"arguments": event.text}}]} if event.text else None

    def _cited(self, event: Cited) -> dict[str, Any] | None:
        source = event.citation if isinstance(event.citation, dict) else {}
        url, title, content = (_text(source.get(name)) for name in ("url", "title", "cited_text"))
        if not url:  # a place in the caller's own document, which OpenAI's annotations cannot name
            self._remark("citation_dropped")
            return None
        citation: dict[str, Any] = {"url": url, "title": title or "", **({"content": content} if content else {})}
        citation |= {"start_index": max(0, self.chars - event.chars), "end_index": self.chars}
        self._annotations += 1
        entry = {"index": self._annotations - 1, "type": "url_citation", "url_citation": citation}
        return {"annotations": [entry]}

    def _pictured(self, event: Pictured) -> dict[str, Any]:
        image = {"url": f"data:{event.media_type};base64,{event.data}"}
        self._images += 1
        return {"images": [{"index": self._images - 1, "type": "image_url", "image_url": image}]}

    def _remark(self, note: str) -> None:
        self.note = self.note or note


_MAKERS: dict[type[AnswerEvent], Callable[[Deltas, Any], dict[str, Any] | None]] = {
    Begin: Deltas._begin,
    Said: Deltas._said,
    Refused: Deltas._refused,
    Thought: Deltas._thought,
    Called: Deltas._called,
    Argued: Deltas._argued,
    Cited: Deltas._cited,
    Pictured: Deltas._pictured,
}
_USAGE_DETAILS = {
    "prompt_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "completion_tokens_details": ("reasoning_tokens",),
}


def logprobs(tokens: Iterable[tuple[Likely, tuple[Likely, ...]]]) -> dict[str, Any]:
    """The `logprobs` of a choice."""
    return {
        "content": [{**_likely(token), "top_logprobs": [*map(_likely, others)]} for token, others in tokens],
        "refusal": None,
    }


def _likely(token: Likely) -> dict[str, Any]:
    return {"token": token.token, "logprob": token.logprob, "bytes": [*token.token.encode("utf-8", "replace")]}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
