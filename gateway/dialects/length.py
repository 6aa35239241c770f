"""Whether a prompt is surely longer than a model's context, for refusing it before a provider is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.core.call import Call
from gateway.dialects.tokens import count_text
from gateway.wire.values import decode_values

_PROMPT = ("system", "messages")
# Members by which the provider itself shortens what it reads: Anthropic's context editing, OpenRouter's compression,
# server-side threads. With them the length of what is sent says nothing.
_SHORTENING = frozenset({"context_management", "plugins", "thread", "transforms", "truncation"})
_COMPACTION = b'"compaction"'  # a block of Anthropic's that stands for all before it
# Bytes of JSON for each token of the window from which on a prompt is counted at all. By the rule below English prose
# has to have 9 of them, digits 6, base64 3 (measured); what is dense and below this is the provider's to refuse.
_LOOK_BYTES = 4
# Of our tokens to one of the model's: o200k counted up to 1.8 times as many as Qwen's vocabulary, in runs of blanks,
# and 1.4 times in Chinese and Indonesian (measured); for most text the two differ by less than a fifth.
_SURE = 2
_PIECE_CHARS = 8_192  # counted in 0.04 ms of prose, 4 ms of noise (measured); others are served in between
_SAMPLE_CHARS = 8 * _PIECE_CHARS  # after which the whole is judged by the density so far
_ROOM = 1.25  # by which the rest may be denser than the sample before it would be missed


def may_be_too_long(call: Call, window: int) -> bool:
    """Whether it is worth counting *call*'s tokens against *window*: by its bytes alone, as every call is asked."""
    fields = call.fields
    size = len(fields.get("messages", b"")) + len(fields.get("system", b""))  # of a Raw: its bytes
    return size > window * _LOOK_BYTES and _SHORTENING.isdisjoint(fields)


def least_tokens(call: Call, window: int) -> Iterator[int]:
    """
    How many tokens the prompt has at the least, as far as it has been counted: a growing number after each piece.

    Ends early where the prompt will hardly reach *window*. Only plain text counts, in messages, system prompts and
    results of tools: of reasoning, tools, images and files providers may drop what they like.
    """
    raw = [call.fields[name] for name in _PROMPT if name in call.fields]
    if any(_COMPACTION in bytes(value) for value in raw):
        return
    pieces = [piece for value in raw for text in _texts(decode_values(value)) for piece in _cut(text)]
    total, seen, tokens = sum(map(len, pieces)), 0, 0
    for piece in pieces:
        tokens += count_text(piece)
        seen += len(piece)
        yield tokens // _SURE
        if seen >= _SAMPLE_CHARS and tokens * total / seen * _ROOM < window * _SURE:
            return


def _texts(node: Any) -> Iterator[str]:
    """The plain text of every message, block and result under *node*."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for item in node:
            yield from _texts(item)
    elif isinstance(node, dict):
        for name in ("text", "content"):
            yield from _texts(node.get(name))


def _cut(text: str) -> Iterator[str]:
    """*text* in pieces. A cut adds a token at the most."""
    for at in range(0, len(text), _PIECE_CHARS):
        yield text[at : at + _PIECE_CHARS]
