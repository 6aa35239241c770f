"""A provider's JSON answer is bounded before it costs anything."""

from __future__ import annotations

import time

import msgspec
import pytest

from gateway.core.errors import UpstreamFailed
from gateway.dialects.answer import MAX_ANSWER_STRUCTURAL, read_answer
from gateway.wire.ascii import MAX_MEND_BYTES
from gateway.wire.body import MAX_DEPTH

CONTROL = b'{"text":"\x01","x":'


def nested(depth: int) -> bytes:
    """Arrays inside each other, *depth* with the object around them."""
    return b"[" * (depth - 1) + b"]" * (depth - 1)


@pytest.mark.parametrize("start", [b'{"x":', CONTROL], ids=["sound", "to be mended"])
def test_depth(start: bytes) -> None:
    """As deep as allowed is read, one more is the provider's failure; in an answer that has to be mended too."""
    members, root = read_answer(start + nested(MAX_DEPTH) + b"}")

    assert bytes(members["x"]) == nested(MAX_DEPTH)
    assert root["x"] != []
    for depth in (MAX_DEPTH + 1, 5000):
        with pytest.raises(UpstreamFailed) as caught:
            read_answer(start + nested(depth) + b"}")

        assert caught.value.failure.reason == "malformed"


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":[' + b"[]," * 5_000_000 + b"1]}",
        b'{"x":' + b"[" * 15_000_000,
        b'{"x":"\x01' + b"a" * 20_000_000 + b'"}',
        CONTROL + b'"' + b'\\"' * (MAX_MEND_BYTES // 2 - 20),
    ],
    ids=["tiny arrays", "open brackets", "long and flawed", "no end"],
)
def test_what_would_hold_everybody_up(body: bytes) -> None:
    """Megabytes of structure, or of text that would have to be mended, are refused quickly."""
    start_s = time.perf_counter()

    with pytest.raises(UpstreamFailed) as caught:
        read_answer(body)

    assert caught.value.failure.reason == "malformed"
    assert time.perf_counter() - start_s < 1.0  # 0.02-0.1 s alone on a machine; 3-5 s without the bounds


def test_large_answers_are_read() -> None:
    """Tens of megabytes of one text, and nearly as many elements as allowed, are an answer."""
    image = b'{"x":"' + b"A" * 20_000_000 + b'"}'
    tokens = b'{"x":[' + b'{"a":1},' * (MAX_ANSWER_STRUCTURAL // 4 - 3) + b"1]}"

    assert len(read_answer(image)[1]["x"]) == 20_000_000
    assert len(read_answer(tokens)[1]["x"]) == MAX_ANSWER_STRUCTURAL // 4 - 2


def test_numbers_stay_as_they_were_spelled() -> None:
    """What has a fraction or an exponent is not converted, however large: it costs its length and is written again."""
    numbers = b"[" + b"1e300," * 150_000 + b"1.50,1e999,-0.0]"
    start_s = time.perf_counter()

    members, root = read_answer(b'{"x":%b,"n":7}' % numbers)

    assert time.perf_counter() - start_s < 1.0  # 0.03 s alone on a machine; 1.8 s if they were converted
    assert msgspec.json.encode(root["x"]) == bytes(members["x"]) == numbers
    assert root["n"] == 7
