"""Ways in which one stream can arrive in several reads."""

from __future__ import annotations

from itertools import pairwise


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """*stream* in reads that end at *places* (taken modulo its length)."""
    ends = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(ends)]


def bytewise(stream: bytes) -> list[bytes]:
    """Each byte in a read of its own."""
    return [stream[at : at + 1] for at in range(len(stream))]
