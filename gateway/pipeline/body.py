"""The body of a JSON answer while it comes."""

from __future__ import annotations

from gateway.core.errors import UpstreamFailed
from gateway.core.ports import UpstreamAnswer
from gateway.dialects.failures import malformed

MAX_BODY_BYTES = 64 * 1024 * 1024  # images in an answer are tens of megabytes at the most; more is an attack


class Body:
    """Keeps what has come, so that a reading that was cut short may be taken up again."""

    def __init__(self, answer: UpstreamAnswer, max_bytes: int = MAX_BODY_BYTES) -> None:
        self.answer = answer
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0

    async def read(self) -> bytes:
        """
        All of it.

        Raises:
            UpstreamFailed: It broke off, or is longer than it may be.
        """
        answer = self.answer
        while data := await answer.read():
            self._parts.append(data)
            self._size += len(data)
            if self._size > self._max_bytes:
                raise UpstreamFailed(malformed("body longer than the limit"))
            if answer.ended:
                break
        return b"".join(self._parts)
