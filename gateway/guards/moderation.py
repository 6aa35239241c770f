"""A provider's moderation endpoint, as bytes: what it is asked, and what its answer finds.

The form is OpenAI's (`POST /moderations`, its API reference): a list of texts, and for each of them a score and a flag
by category.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from gateway.core.guarding import Finding

THRESHOLD = 0.5
"""The least score of what the provider itself flags: its own limits differ by category, and change with its models."""

LEAST = 0.01
"""Scores below are not told: every text has some of every category."""

MAX_TEXTS = 32  # of one request
MAX_BYTES = 24_000  # of its texts together, in UTF-8: no more tokens than that, and its models read 32,768
MAX_ANSWER_BYTES = 256 * 1024  # 32 results are about 40 KB

KINDS: Final[Mapping[str, str]] = {
    "harassment": "harassment",
    "harassment/threatening": "violence",
    "hate": "hate",
    "hate/threatening": "hate",
    "illicit": "illegal_trade",
    "illicit/violent": "weapons",
    "self-harm": "self_harm",
    "self-harm/instructions": "self_harm",
    "self-harm/intent": "self_harm",
    "sexual": "sexual",
    "sexual/minors": "minors",
    "violence": "violence",
    "violence/graphic": "violence",
}
"""The kinds of `content`, and one more, by the provider's categories."""

_OTHER = re.compile(r"[^a-z0-9]+")
_MAX_KIND_CHARS = 40


class Part(Struct, frozen=True, gc=False):
    """A text, or a piece of one that is too long for a request; *number* is the text's."""

    number: int
    text: str


class _Result(Struct):
    categories: dict[str, bool | None] = {}
    category_scores: dict[str, float | None] = {}


class _Answer(Struct):
    results: list[_Result]


_DECODER = msgspec.json.Decoder(_Answer)


def batches(texts: Sequence[str]) -> Iterator[list[Part]]:
    """*texts* as they are asked about: some at a time, long ones in pieces, empty ones not at all."""
    batch: list[Part] = []
    size = 0
    for number, text in enumerate(texts):
        for piece in _pieces(text):
            length = len(piece.encode("utf-8", "replace"))
            if batch and (len(batch) == MAX_TEXTS or size + length > MAX_BYTES):
                yield batch
                batch, size = [], 0
            batch.append(Part(number, piece))
            size += length
    if batch:
        yield batch


def _pieces(text: str) -> Iterator[str]:
    """*text* in pieces that fit into a request, cut where a word ends, if one does near by."""
    if not text.strip():
        return
    longest = MAX_BYTES if text.isascii() else MAX_BYTES // 4
    start = 0
    while len(text) - start > longest:
        end = text.rfind(" ", start + longest // 2, start + longest) + 1 or start + longest
        yield text[start:end]
        start = end
    yield text[start:]


def question(model: str, batch: Sequence[Part]) -> bytes:
    """The body that asks *model* about *batch*."""
    texts = [part.text.encode("utf-8", "replace").decode() for part in batch]
    return msgspec.json.encode({"model": model, "input": texts})


def scores(body: bytes, batch: Sequence[Part]) -> list[Mapping[str, float]]:
    """
    How sure the provider is of each kind, for each part of *batch*: of several categories of a kind the surest.

    Raises:
        ValueError: *body* is no answer to that question.
    """
    results = _DECODER.decode(body).results
    if len(results) != len(batch):
        raise ValueError("as many results as texts")
    return [_by_kind(result) for result in results]


def _by_kind(result: _Result) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for category in {**result.category_scores, **result.categories}:
        score = min(max(result.category_scores.get(category) or 0.0, 0.0), 1.0)
        if result.categories.get(category):
            score = max(score, THRESHOLD)
        kind = _kind(category)
        found[kind] = max(score, found.get(kind, 0.0))
    return found


def _kind(category: str) -> str:
    """Our word for *category*; one that we do not know keeps its name, in our letters."""
    return KINDS.get(category) or _OTHER.sub("_", category.lower())[:_MAX_KIND_CHARS].strip("_") or "other"


def findings(text: str, parts: Sequence[Mapping[str, float]]) -> tuple[Finding, ...]:
    """What *parts*, the scores of the pieces of *text*, come to: a finding for each kind, whose place is all of it."""
    surest: dict[str, float] = {}
    for part in parts:
        for kind, score in part.items():
            surest[kind] = max(score, surest.get(kind, 0.0))
    return tuple(
        [
            Finding(kind, 0, len(text), score, "by the provider")
            for kind, score in sorted(surest.items(), key=lambda one: (-one[1], one[0]))
            if score >= LEAST
        ]
    )
