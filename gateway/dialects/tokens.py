"""Our own token counts, for when a provider's are missing: an estimate, and always marked as one."""

from __future__ import annotations

import math
from collections.abc import Generator

import msgspec
import toktok

ENCODING = "o200k_base"  # the newest public vocabulary; what others differ by is their `Family`'s factor
_PER_MESSAGE = 4  # role and separators of a chat message, by OpenAI's published counting recipe
# A longer text is counted in part and extrapolated: 0.5 ms of prose, 18 ms of noise (measured), while all streams wait.
MAX_COUNTED_CHARS = 131_072
# Of an answer that much is kept while it streams: some 8,000 tokens. Each open stream holds it, so it is kept small.
MAX_KEPT_CHARS = 32_768
_PIECE_CHARS = 8_192  # in one step: 0.04 ms of prose, 4 ms of noise (measured)
_TEXT_CHARS = 64  # what a text costs however short it is, in characters of prose: there may be very many
_NO_LIMIT = 1 << 40  # tokens
_FOLD_AT = 64  # pieces kept apart before they are joined: a Python string of one token weighs over 50 bytes


def count_text(text: str) -> int:
    """Tokens of *text*, counted as a whole: the sum over arbitrary pieces would overcount by more than half."""
    return _count([text]) if text else 0


def count_prompt(texts: list[str]) -> int:
    """Tokens of a prompt, one text per message."""
    return _count(texts) + _PER_MESSAGE * len(texts) if texts else 0


def prompt_steps(texts: list[str]) -> Generator[None, None, int]:
    """As `count_prompt`, with stops where others can be served. A cut adds a token at the most."""
    parts, scale = _sample(texts)
    tokens = work = 0
    for part in parts:
        for at in range(0, len(part), _PIECE_CHARS):
            piece = part[at : at + _PIECE_CHARS]
            tokens += _exact(piece)
            work += len(piece) + _TEXT_CHARS
            if work >= _PIECE_CHARS:
                yield
                work = 0
    return round(tokens * scale) + _PER_MESSAGE * len(texts)


def _count(texts: list[str]) -> int:
    """Tokens of *texts*."""
    parts, scale = _sample(texts)
    return round(sum(map(_exact, parts)) * scale)


def _sample(texts: list[str]) -> tuple[list[str], float]:
    """What is counted of *texts*, and for how much it stands: beyond `MAX_COUNTED_CHARS` the same part of each."""
    total = sum(map(len, texts))
    if total <= MAX_COUNTED_CHARS:
        return texts, 1.0
    parts = [text[: math.ceil(len(text) * MAX_COUNTED_CHARS / total)] for text in texts]
    return parts, total / sum(map(len, parts))


def _exact(text: str) -> int:
    """A limit that cuts nothing makes the count: the library's function for counts wakes threads, 40 us against 1."""
    tokens: int = toktok.truncate(text, _NO_LIMIT, ENCODING)[1]
    return tokens


def as_text(values: object) -> str:
    """What a tool was called with, from `decode_values`, as text to count."""
    try:
        return msgspec.json.encode(values).decode()
    except OverflowError:  # an integer of over 64 bits; for an estimate, Python's spelling will do
        return repr(values)


def warm_up() -> None:
    """Load the vocabulary (about half a second) so that no request has to wait for it."""
    count_text("a")


class Tally:
    """What an upstream has said so far, kept so that it can be counted once at the end.

    A provider sends at least one token per content delta, so the number of deltas is a floor for the count; the text
    counted as a whole covers providers that put many tokens in one delta. Memory is bounded: of a long answer only the
    first `MAX_KEPT_CHARS` and one delta more are kept, and stand for the rest.

    Args:
        factor: The model's tokens for one of ours, see `Family`.
    """

    __slots__ = ("_chars", "_factor", "_kept_chars", "_pieces", "deltas")

    def __init__(self, factor: float = 1.0) -> None:
        self.deltas = 0
        self._factor = factor
        self._chars = 0
        self._kept_chars = 0
        self._pieces: list[str] = []

    def add(self, text: str) -> None:
        """Note one content delta."""
        self.deltas += 1
        self._chars += len(text)
        if self._kept_chars > MAX_KEPT_CHARS:
            return
        self._kept_chars += len(text)
        pieces = self._pieces
        pieces.append(text)
        if len(pieces) >= _FOLD_AT:
            self._pieces = ["".join(pieces)]

    def tokens(self) -> int:
        """The estimate."""
        if not self._chars:
            return self.deltas
        counted = count_text("".join(self._pieces))
        return max(self.deltas, round(counted * self._factor * self._chars / self._kept_chars))
