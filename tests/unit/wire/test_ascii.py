"""JSON in ASCII: the same value, and mended where a strict decoder would give up."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.ascii import MAX_MEND_BYTES, ascii_json, mend_json
from tests.support.scale import examples

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(values)
def test_ascii_json_is_the_same_value(value: Any) -> None:
    """Escaped or not, the payload means the same to a JSON reader, and not one byte is outside ASCII."""
    payload = json.dumps(value, ensure_ascii=False).encode()

    escaped = ascii_json(payload)

    assert escaped.isascii()
    assert json.loads(escaped) == value
    assert mend_json(payload) == escaped


def test_ascii_payload_is_the_same_object() -> None:
    """A payload in ASCII costs nothing: it is handed back."""
    payload = b'{"a":"\\u00e9 1.50"}'

    assert ascii_json(payload) is payload


def test_escapes_are_those_of_json() -> None:
    """Two-byte, three-byte and astral characters become one, one and two escapes; all else stays as spelled."""
    assert ascii_json('{ "é€🦀":1.50,"b":"\\n\\"\u2028"}'.encode()) == (
        b'{ "\\u00e9\\u20ac\\ud83e\\udd80":1.50,"b":"\\n\\"\\u2028"}'
    )


def test_bytes_that_are_not_utf_8() -> None:
    """Bytes that are not UTF-8 become U+FFFD."""
    assert ascii_json(b'"a\xff\xc3"') == b'"a\\ufffd\\ufffd"'
    assert mend_json(b'"a\xffb"') == b'"a\\ufffdb"'


@pytest.mark.parametrize(
    ("payload", "mended"),
    [
        (b'{"a":"x\ny\x00\x1f\t"}', b'{"a":"x\\u000ay\\u0000\\u001f\\u0009"}'),
        (b'\xef\xbb\xbf{"a":1}', b'{"a":1}'),
        (b'{"a":"\\ud83d"}', b'{"a":"\\ufffd"}'),
        (b'{"a":"\\udf78b"}', b'{"a":"\\ufffdb"}'),
        (b'{"a":"\\ud83d\\ud83d\\ude00\\ude00"}', b'{"a":"\\ufffd\\ud83d\\ude00\\ufffd"}'),
        (b'{"\\uD83D":"\\uD83D\\uDE00"}', b'{"\\ufffd":"\\uD83D\\uDE00"}'),
        (b'{"a":"\\\\ud83d"}', b'{"a":"\\\\ud83d"}'),
        (b'{"a":"\\\\\\ud83d"}', b'{"a":"\\\\\\ufffd"}'),
        (b'{\r\n\t"a" : 1.50 ,\n"b":99999999999999999999}', b'{\r\n\t"a" : 1.50 ,\n"b":99999999999999999999}'),
        (b'{"a":"\xed\xa0\xbd"}', b'{"a":"\\ufffd\\ufffd\\ufffd"}'),
        ('{"a":"é\\ud83d🦀\x01"}'.encode(), b'{"a":"\\u00e9\\ufffd\\ud83e\\udd80\\u0001"}'),
    ],
)
def test_mended(payload: bytes, mended: bytes) -> None:
    """SSE-28 and its kin: what an upstream meant is kept, spelled so that every decoder takes it."""
    assert mend_json(payload) == mended
    assert msgspec.json.decode(mended) is not None


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"[DONE]", b"{", b'{"a":"x', b'{"a":NaN}', b'{"a":-Infinity}', b"oops \xff",
        b'{"a":"\\x"}', '{"a":"\\é"}'.encode(), b'{"a":"\\\n"}', b"{}\x00", b"\x01{}", b"[" * 100_000,
        b'{"a":' + b"9" * 5000 + b"}", b'"' + b'\\"' * 100_000,
    ],
    ids=lambda payload: repr(payload)[:24],
)  # fmt: skip
def test_beyond_mending(payload: bytes) -> None:
    """What is no JSON even then, or has an integer too long to read, is None, in linear time."""
    assert mend_json(payload) is None


def test_mending_leaves_numbers_alone() -> None:
    """Numbers stay as they were spelled, even one that no double can hold: whoever reads it judges it."""
    assert mend_json(b'{"a":"\x01","b":[1e999,-1.0e-0]}') == b'{"a":"\\u0001","b":[1e999,-1.0e-0]}'


def test_controls_of_every_kind() -> None:
    """Each of the 32 controls is escaped in a string, and none behind a backslash that is not itself escaped."""
    controls = bytes(range(32))

    mended = mend_json(b'["\\\\' + controls + b'",\r\n"\\ud800"]')

    assert mended is not None
    assert json.loads(mended) == ["\\" + controls.decode(), "\ufffd"]
    assert mend_json(b'["\\\\\\\x01"]') is None


def test_what_is_too_long_to_mend() -> None:
    """Mending has a bound of its own: a strict decoder takes any length, this one would hold everybody up."""
    room = b'"\x01' + b"a" * (MAX_MEND_BYTES - 3) + b'"'

    assert len(room) == MAX_MEND_BYTES
    assert mend_json(room) is not None
    assert mend_json(room + b" ") is None


PIECES = [
    b'"', b"\\", b"\\u", b"d83d",
    b"\\ud83d", b"\\ude00", b"\n", b"\x00", b"\xff", b"\xc3\xa9", b"a", b"\xef\xbb\xbf", b"1",
]  # fmt: skip


def scrubbed(value: Any) -> Any:
    """*value* with U+FFFD for every lone surrogate in its strings and keys."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in value)
    if isinstance(value, dict):
        return {scrubbed(key): scrubbed(inner) for key, inner in value.items()}
    return value


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map(lambda pieces: b'{"a":"' + b"".join(pieces) + b'"}'))
def test_mended_as_a_lenient_decoder_reads_it(payload: bytes) -> None:
    """What Python's lenient decoder understands is mended to the same value, lone surrogates and bad bytes replaced."""
    text = payload.decode("utf-8-sig", "replace")
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        assert mend_json(payload) is None
        return
    mended = mend_json(payload)

    assert mended is not None
    assert mended.isascii()
    assert msgspec.json.decode(mended) == scrubbed(value)
