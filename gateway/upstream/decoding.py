"""Bodies that came compressed although plain ones were asked for: inflated as they come, within bounds."""

from __future__ import annotations

import zlib
from typing import NoReturn

from gateway.core.errors import UpstreamFailed
from gateway.upstream.faults import encoding_failure

OUTPUT_BYTES = 65536  # of one step: bounds memory and the time the loop is held (0.1-0.3 ms)
FREE_BYTES = 1 << 20  # below it any ratio is allowed: a short answer may be one word repeated
MAX_RATIO = 100  # text and JSON reach 5-30; deflate's own limit, which bombs come near to, is 1032
MAX_EMPTY_MEMBERS = 16  # gzip members without content in a row: each costs time and yields nothing

IDENTITY = frozenset({"", "identity"})
SUPPORTED = frozenset({"gzip", "x-gzip", "deflate"})


class Inflater:
    """An incremental decoder. `feed` only when `take` gave nothing; both are bounded by `OUTPUT_BYTES`.

    Args:
        encoding: One of `SUPPORTED`.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._inflate: zlib._Decompress | None = None
        self._pending = b""
        self._may_have_more = False
        self._read = 0
        self._written = 0
        self._empty_members = 0

    def feed(self, data: bytes) -> None:
        """Hand in the next compressed bytes."""
        self._pending += data
        self._read += len(data)

    def take(self) -> bytes:
        """
        The next plain bytes, b"" when more input is needed.

        Raises:
            UpstreamFailed: The data are damaged, or blow up beyond `MAX_RATIO`.
        """
        while self._pending or self._may_have_more:
            out = self._step()
            if out:
                self._check_ratio(len(out))
                return out
        return b""

    def finish(self) -> None:
        """
        The body is over.

        Raises:
            UpstreamFailed: It ended inside a compressed member.
        """
        if self._inflate is not None:
            raise UpstreamFailed(encoding_failure("truncated", "the compressed body has no end"))

    def _step(self) -> bytes:
        if self._inflate is None:
            self._inflate = zlib.decompressobj(self._window())
        try:
            out = self._inflate.decompress(self._pending, OUTPUT_BYTES)
        except zlib.error as exc:
            _fail(str(exc))
        self._pending = self._inflate.unconsumed_tail
        self._may_have_more = len(out) == OUTPUT_BYTES  # more may be kept inside zlib without any input left
        if self._inflate.eof:
            self._end_member(out)
        return out

    def _end_member(self, out: bytes) -> None:
        assert self._inflate is not None
        self._pending = self._inflate.unused_data
        self._inflate = None
        self._may_have_more = False
        self._empty_members = 0 if out else self._empty_members + 1
        if self._empty_members > MAX_EMPTY_MEMBERS:
            _fail("too many empty members")

    def _window(self) -> int:
        if self._encoding != "deflate":
            return 16 + zlib.MAX_WBITS
        # "deflate" means zlib's format (RFC 9110, 8.4.1.2), but some servers send the bare stream
        wrapped = self._pending[0] & 0x0F == zlib.DEFLATED
        return zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS

    def _check_ratio(self, size: int) -> None:
        self._written += size
        used = self._read - len(self._pending)
        if self._written > FREE_BYTES and self._written > used * MAX_RATIO:
            _fail(f"{used} bytes became {self._written}")


def _fail(detail: str) -> NoReturn:
    raise UpstreamFailed(encoding_failure("encoding", detail))
