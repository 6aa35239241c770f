"""The head of a request, most of which is the same for many."""

from __future__ import annotations

from functools import lru_cache

from gateway.core.call import UpstreamRequest

MAX_HEADS = 512  # of different headers: two for each provider, and more where clients' own are passed on (8 KB at most)


class Heads:
    """Spells heads, and keeps what may be spelled again. `len` is how many it keeps; credentials are among it."""

    def __init__(self) -> None:
        self._lines = lru_cache(maxsize=MAX_HEADS)(_lines)

    def __len__(self) -> int:
        return self._lines.cache_info().currsize

    def head(self, first: str, request: UpstreamRequest) -> bytes:
        """
        What is sent before the body.

        Args:
            first: The lines that come before the headers of *request*.

        Raises:
            ValueError: A header holds a line break.
        """
        own = _lines(request.signature) if request.signature else ""  # never the same again
        lines = f"{first}{self._lines(request.headers)}{own}Content-Length: {len(request.body)}\r\n\r\n"
        return lines.encode("utf-8", "surrogateescape")

    def forget(self) -> None:
        """Keep nothing: there are new settings, and credentials of the old ones."""
        self._lines.cache_clear()


def _lines(headers: tuple[tuple[str, str], ...]) -> str:
    """
    *headers* as they are sent.

    Raises:
        ValueError: One holds a line break. None gets this far: ours are checked with the settings, and a client's
            cannot be received with one.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a header with a line break")
    return lines
