"""The digest of a body that is to be signed, made in pieces: no stream would move in the 56 ms that 24 MiB take."""

from __future__ import annotations

import asyncio
from hashlib import sha256

PIECE_BYTES = 256 * 1024  # up to 0.6 ms, as measured of 24 MiB; others have their turn in between


class Digest:
    """
    SHA-256 of *body*.

    Attributes:
        is_whole: Whether `text` is that of all of *body*: at once where it is no longer than a piece.
    """

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self._at = 0
        self._hash = sha256()
        self._add()

    @property
    def is_whole(self) -> bool:
        return self._at >= len(self._body)

    @property
    def text(self) -> str:
        """In hexadecimal digits."""
        return self._hash.hexdigest()

    async def complete(self) -> None:
        """Go on to the end. Whoever is woken up in between goes on where it stood, as a step under a `Watch` must."""
        while not self.is_whole:
            await asyncio.sleep(0)
            self._add()

    def _add(self) -> None:
        self._hash.update(self._body[self._at : self._at + PIECE_BYTES])
        self._at += PIECE_BYTES
