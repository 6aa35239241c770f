"""The fake provider's words in both dialects, by the providers' public API references."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .script import Script

_CREATED = 1764000000


@dataclass(frozen=True, slots=True)
class Speech:
    """
    A dialect of the provider. Pieces are whole HTTP/1.1 chunks, so that they go out in any number.

    Attributes:
        opening: Up to the first token.
        piece: One token.
        finish: What says that the answer is complete; in OpenAI's dialect the usage comes behind it.
        usage: The usage.
        terminator: The last words.
        answer: A whole JSON answer.
    """

    opening: Callable[[Script, str], bytes]
    piece: Callable[[Script, str, str], bytes]
    finish: Callable[[Script, str], bytes]
    usage: Callable[[Script, str], bytes]
    terminator: bytes
    answer: Callable[[Script, str], bytes]


def chunk(payload: bytes) -> bytes:
    """One HTTP/1.1 chunk (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def compact(value: object) -> bytes:
    """JSON without blanks."""
    return json.dumps(value, separators=(",", ":")).encode()


def reported(script: Script) -> tuple[int, int, int]:
    """Prompt, cached and completion tokens of a whole answer."""
    return script.prompt, script.cached, script.counted(script.tokens)


def _name(script: Script) -> str:
    return f"soak-{script.marker}"


def _openai_chunk(script: Script, model: str, choices: list[dict[str, Any]], usage: dict[str, Any] | None) -> bytes:
    about = {"id": _name(script), "object": "chat.completion.chunk", "created": _CREATED, "model": model}
    return chunk(b"data: " + compact({**about, "choices": choices, "usage": usage}) + b"\n\n")


def _openai_usage(script: Script) -> dict[str, Any]:
    prompt, cached, completion = reported(script)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _choice(delta: dict[str, Any], finish: str | None = None) -> list[dict[str, Any]]:
    return [{"index": 0, "delta": delta, "finish_reason": finish}]


def _openai_piece(script: Script, model: str, word: str) -> bytes:
    # By hand: written once for every token of the soak.
    data = (
        f'data: {{"id":"{_name(script)}","object":"chat.completion.chunk","created":{_CREATED},"model":"{model}",'
        f'"choices":[{{"index":0,"delta":{{"content":"{word}"}},"finish_reason":null}}],"usage":null}}\n\n'
    )
    return chunk(data.encode())


def _openai_answer(script: Script, model: str) -> bytes:
    message = {"role": "assistant", "content": "".join(script.words())}
    about = {"id": _name(script), "object": "chat.completion", "created": _CREATED, "model": model}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return compact({**about, "choices": choices, "usage": _openai_usage(script)})


OPENAI = Speech(
    opening=lambda script, model: _openai_chunk(script, model, _choice({"role": "assistant", "content": ""}), None),
    piece=_openai_piece,
    finish=lambda script, model: _openai_chunk(script, model, _choice({}, "stop"), None),
    usage=lambda script, model: _openai_chunk(script, model, [], _openai_usage(script)),
    terminator=chunk(b"data: [DONE]\n\n"),
    answer=_openai_answer,
)


def _event(value: dict[str, Any]) -> bytes:
    return chunk(b"event: %b\ndata: %b\n\n" % (value["type"].encode(), compact(value)))


def _anthropic_input(script: Script) -> dict[str, int]:
    """Tokens from the cache stand beside the others here."""
    prompt, cached, _ = reported(script)
    return {"input_tokens": prompt - cached, "cache_read_input_tokens": cached, "cache_creation_input_tokens": 0}


def _anthropic_opening(script: Script, model: str) -> bytes:
    message = {
        "id": _name(script),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**_anthropic_input(script), "output_tokens": 1},
    }
    block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    return _event({"type": "message_start", "message": message}) + _event(block)


def _anthropic_usage(script: Script, _model: str) -> bytes:
    usage = {**_anthropic_input(script), "output_tokens": reported(script)[2]}
    return _event({
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": usage,
    })


def _anthropic_answer(script: Script, model: str) -> bytes:
    return compact({
        "id": _name(script),
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": "".join(script.words())}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {**_anthropic_input(script), "output_tokens": reported(script)[2]},
    })


ANTHROPIC = Speech(
    opening=_anthropic_opening,
    piece=lambda _script, _model, word: chunk(
        b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
        b'"delta":{"type":"text_delta","text":"%b"}}\n\n' % word.encode()
    ),
    finish=lambda _script, _model: _event({"type": "content_block_stop", "index": 0}),
    usage=_anthropic_usage,
    terminator=_event({"type": "message_stop"}),
    answer=_anthropic_answer,
)
