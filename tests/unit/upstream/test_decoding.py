"""The bounded decoder."""

from __future__ import annotations

import gzip
import random
import zlib

import pytest

from gateway.core.errors import UpstreamFailed
from gateway.upstream.decoding import FREE_BYTES, MAX_EMPTY_MEMBERS, OUTPUT_BYTES, Inflater

PLAIN = b"".join(b'data: {"n":%d,"r":%d}\n\n' % (n, n * 7919 % 1000003) for n in range(9000))


def raw_deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(data) + deflate.flush()


def inflated(encoding: str, data: bytes, step: int = 1 << 20) -> bytes:
    inflater = Inflater(encoding)
    plain = b""
    for start in range(0, len(data), step):
        inflater.feed(data[start : start + step])
        while out := inflater.take():
            assert len(out) <= OUTPUT_BYTES
            plain += out
    inflater.finish()
    return plain


@pytest.mark.parametrize("step", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", raw_deflate)],
    ids=["gzip", "x-gzip", "zlib", "raw"],
)
def test_any_cut(encoding: str, pack: object, step: int) -> None:
    """The plain bytes are the same however the input is cut, and no step gives more than its bound."""
    plain = PLAIN[:3000] if step == 1 else PLAIN

    assert inflated(encoding, pack(plain), step) == plain  # type: ignore[operator]


def test_nothing_is_kept_back() -> None:
    """Wherever the input stops, all that can be decoded from it is handed out, also just at the bound of a step."""
    packed = gzip.compress(bytes(3 * OUTPUT_BYTES))
    for end in range(1, len(packed)):
        inflater = Inflater("gzip")
        inflater.feed(packed[:end])
        size = 0
        while out := inflater.take():
            size += len(out)

        assert size == len(zlib.decompressobj(wbits=31).decompress(packed[:end]))


def test_members_in_a_row() -> None:
    """Several gzip members are one body, also when each holds one event."""
    parts = [PLAIN[start : start + 100] for start in range(0, 20_000, 100)]

    assert inflated("gzip", b"".join(map(gzip.compress, parts))) == b"".join(parts)


def test_empty_members() -> None:
    """A row of members without content is refused: each would cost time and give nothing."""
    with pytest.raises(UpstreamFailed):
        inflated("gzip", gzip.compress(b"") * (MAX_EMPTY_MEMBERS + 1))


def test_short_and_dull() -> None:
    """A short body may be as repetitive as it likes."""
    plain = b"a" * FREE_BYTES

    assert inflated("gzip", gzip.compress(plain)) == plain


def test_bomb_of_members() -> None:
    """The ratio is counted over all members."""
    with pytest.raises(UpstreamFailed) as caught:
        inflated("gzip", gzip.compress(bytes(FREE_BYTES)) * 3)
    assert caught.value.failure.reason == "encoding"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_garbage(encoding: str) -> None:
    """Bytes that are no compressed data are a failure, never another exception."""
    dice = random.Random(7)
    for _ in range(200):
        with pytest.raises(UpstreamFailed):
            inflated(encoding, b"\xff" + dice.randbytes(60))


def test_cut_short() -> None:
    """A body that ends inside a member is `truncated`."""
    with pytest.raises(UpstreamFailed) as caught:
        inflated("gzip", gzip.compress(PLAIN)[:-9])
    assert caught.value.failure.reason == "truncated"


def test_nothing() -> None:
    """No bytes at all are an empty body."""
    assert inflated("gzip", b"") == b""
