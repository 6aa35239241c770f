"""Request bodies: what is refused, what is kept, and that a key twice never slips through."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.wire.body import BadBody, BodyLimits, _count, parse_object, replace_members
from tests.support.scale import examples

LIMITS = BodyLimits(max_depth=16, max_structural=500)
TWICE = "An object in the request body has the same key twice."


def parse(body: bytes, limits: BodyLimits = LIMITS) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in parse_object(body, limits).items()}


def refusal(body: bytes, limits: BodyLimits = LIMITS) -> BadBody:
    with pytest.raises(BadBody) as caught:
        parse_object(body, limits)
    assert caught.value.message.startswith(("The request body ", "An object in the request body "))
    assert caught.value.message.endswith(".")
    return caught.value


def test_members_keep_order_and_bytes() -> None:
    """Members come in the client's order, unknown ones too, values as they were spelled."""
    integers = b'{"y": 1e2, "big":18446744073709551615,"low":-9223372036854775808}'
    body = b' {"z" : [1, 2.50 ] ,"model":"a\\u00e9","x":%b}\r\n' % integers

    assert list(parse(body).items()) == [
        ("z", b"[1, 2.50 ]"),
        ("model", b'"a\\u00e9"'),
        ("x", integers),
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "is empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "in UTF-8."),
        ('{"a":1}'.encode("utf-16-le"), "in UTF-8."),
        ('{"a":1}'.encode("utf-16-be"), "in UTF-8."),
        ('{"a":1}'.encode("utf-32-be"), "in UTF-8."),
        (b'{"a":"\xff"}', "in UTF-8."),
        (b'{"\xc3":1}', "in UTF-8."),
        (b'{"a":{"b":"\xed\xa0\x80"}}', "in UTF-8."),
        (b'{"a":"\xc0\xaf"}', "in UTF-8."),
        (b"   ", "valid JSON"),
        (b"[]", "a JSON object"),
        (b'"a"', "a JSON object"),
        (b"1", "a JSON object"),
        (b"null", "a JSON object"),
        (b'{"a":1} x', "valid JSON (near byte "),
        (b'{"a":1}{"a":1}', "valid JSON"),
        (b'{"a":1', "valid JSON (near byte 6)"),
        (b'{"a":1,}', "valid JSON"),
        (b"{'a':1}", "valid JSON"),
        (b'{"a":01}', "valid JSON"),
        (b'{"a":[NaN]}', "valid JSON"),
        (b'{"a":-Infinity}', "valid JSON"),
        (b'{"a":1e999}', "out of range"),
        (b'{"a":[-1e999]}', "out of range"),
        (b'{"a":' + b"9" * 5000 + b"}", "out of range"),
        (b'{"a":' + b"9" * 30 + b"}", "out of range"),
        (b'{"a":[18446744073709551616]}', "out of range"),
        (b'{"a":{"b":-9223372036854775809}}', "out of range"),
        (b'{"a":"\\ud800"}', "valid JSON"),
        (b'{"a":"\\udc00 "}', "valid JSON"),
        (b'{"a":"\\ud83d\\u0041"}', "valid JSON"),
        (b'{"a\\ud83d":1}', "valid JSON"),
        (b'{"a":"\x00"}', "valid JSON"),
        (b'{"a":"\n"}', "valid JSON"),
        (b'{"a":1}\x00', "valid JSON"),
        (b'{"a":"\\x"}', "valid JSON"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_b7_what_is_no_json_object_in_utf_8(body: bytes, message: str) -> None:
    """B7: anything but one JSON object in UTF-8 with representable numbers is refused in one public sentence."""
    assert message in refusal(body).message


NUMBERS = [
    b"-9999.0", b"0.12345678901234567", b"1e-7", b"1e300", b"-1e308", b"1.7976931348623157E+308", b"1e0000000308",
    b"5e-324", b"1e-999", b"0e0", b"-0.0", b"0." + b"1" * 5000, b"9" * 308 + b".5", b"12345678901234567890.5",
]  # fmt: skip
BEYOND = [
    b"1e309", b"-1E309", b"1e+309", b"1e0309", b"1.5e310", b"9.9e999", b"1e1000", b"1e99999999999", b"9" * 310 + b".5",
    b"0." + b"1" * 500 + b"e320",
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS, ids=lambda value: repr(value)[:24])
def test_numbers_that_a_double_holds(number: bytes) -> None:
    """A number within a double's range is kept as it was spelled, by its exponent or its digits, at any depth."""
    value = b'{"b":[0.5,%b,"1e999"]}' % number

    assert parse(b'{"a":%b,"c":%b}' % (value, number)) == {"a": value, "c": number}


@pytest.mark.parametrize("number", BEYOND, ids=lambda value: repr(value)[:24])
@pytest.mark.parametrize("place", [b"%b", b"[0.1,1e5,%b,1e-5]", b'{"x":{"y":[%b]}}'])
def test_numbers_beyond_a_double(number: bytes, place: bytes) -> None:
    """B7: one number with an exponent or an integer part that no double has spoils the body, wherever it stands."""
    assert "out of range" in refusal(b'{"a":%b}' % (place % number)).message


@pytest.mark.parametrize("number", [b"1e300", b"1.7976931348623157e308"])
def test_numbers_cost_what_their_length_costs(number: bytes) -> None:
    """As many numbers as a body may have, of the kind that takes long to convert, are read in no time."""
    numbers = b"[" + b",".join([number] * min(199_000, 4_000_000 // len(number))) + b"]"
    start_s = time.perf_counter()
    parsed = parse(b'{"a":%b}' % numbers, BodyLimits())

    assert time.perf_counter() - start_s < 1.0  # 0.04-0.07 s alone on a machine; 2.4 s if they were converted
    assert parsed["a"] == numbers


@pytest.mark.parametrize("open_close", [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("skipped", [b"", b',"x":1', b',"a":1'])
def test_b7_depth(open_close: tuple[bytes, bytes], skipped: bytes) -> None:
    """B7: a body as deep as the limit passes, one deeper is refused, and no depth is a crash, even in a lost member."""
    opening, closing = open_close

    def nested(depth: int) -> bytes:
        return b'{"a":' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"%b}"

    if skipped != b',"a":1':
        assert parse(nested(16) % skipped)
        assert "too deeply" in refusal(nested(17) % skipped).message
    wide = BodyLimits(max_depth=16, max_structural=1_000_000)
    for depth in (*range(850, 1001), 100_000):
        message = refusal(nested(depth) % skipped, wide).message
        assert "too deeply" in message or message == TWICE
    assert "too deeply" in refusal(b'{"a":' + opening * 100_000, wide).message


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"model":1,"messages":2,"model":1}', "model"),
        (b'{"model":1,"mod\\u0065l":2}', "model"),
        (b'{"a":[{"b":{"role":1,"x":"","role":2}}]}', "role"),
        (b'{"":1,"":2}', ""),
        (b'{"a\\"":1,"a\\"":2}', 'a"'),
        (b'{"a\\\\":1,"a\\\\":2}', "a\\"),
        (b'{"a":1,"a":2,"b":"\\u003a"}', "a"),
        (b'{"a":1,"a":2,"b":"\\u0022\\u0022"}', "a"),
        (b'{"a":1,"a":2,"b\\u0022\\u0022":1}', "a"),
        (b'{"\\u0022":1,"\\"":2}', '"'),
        (b'{"/":1,"\\/":2}', "/"),
        (b'{"a":"\\"\\"","a":2}', "a"),
        ('{"é":1,"\\u00e9":2}'.encode(), None),
        ('{"😀":1,"\\ud83d\\ude00":2}'.encode(), None),
        (b'{"\\u0000":1,"\\u0000":2}', None),
        (b'{"%b":1,"%b":2}' % (b"k" * 65, b"k" * 65), None),
    ],
)
def test_b8_the_same_key_twice(body: bytes, key: str | None) -> None:
    """B8: a key twice in one object is refused at any depth, however it is spelled, and named when it is plain."""
    error = refusal(body)

    assert error.message == TWICE
    assert error.param == key


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":{"a":{"a":[{"a":1},{"a":2}]}}}',
        b'{"a":"\\"a\\":1,","b":":","c":"\\\\","d\\\\":"\\\\\\""}',
        b'{"u":"\\u0022","v":"\\\\u0022","\\u0022":"\\u0022\\""}',
        b'{"a":1,"A":2,"a ":3,"a\\u0000":4}',
    ],
)
def test_b8_keys_that_only_look_alike(body: bytes) -> None:
    """B8: the same key in different objects, and quotes and colons inside strings, are no duplicates."""
    assert {name: json.loads(value) for name, value in parse(body).items()} == json.loads(body)


# Few short keys and strings, made of what could fool a count; each character as itself or as an escape.
CHARACTERS = ['\\"', "\\u0022", "\\\\", "\\u005c", ":", "\\u003a", ",", "{", "u0022", "a", "\\u0061", "é"]
strings = st.lists(st.sampled_from(CHARACTERS), max_size=3).map(lambda chars: '"' + "".join(chars) + '"')
spaces = st.sampled_from(["", "", " ", "\n"])


def _array(items: list[str]) -> str:
    return "[" + ",".join(items) + "]"


def _object(members: list[tuple[str, str, str]]) -> str:
    return "{" + ",".join(f"{space}{key}{space}:{space}{value}" for key, space, value in members) + "}"


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(st.tuples(strings, spaces, values), max_size=4).map(_object)


texts = st.recursive(
    strings | st.sampled_from(["1", "-0.5", "null", "true"]),
    lambda values: st.lists(values, max_size=4).map(_array) | objects(values),
    max_leaves=12,
)


def has_twice(text: str) -> bool:
    """The reference: every object as a list of pairs."""
    found = []

    def pairs(members: list[tuple[str, Any]]) -> None:
        found.append(len({key for key, _ in members}) < len(members))

    json.loads(text, object_pairs_hook=pairs)
    return any(found)


@settings(max_examples=examples(600), derandomize=True, deadline=None)
@given(objects(texts))
@example('{"a":1,"a":2,"b":"\\u003a"}')
@example('{"a":"","a":"","b":"\\u0022\\u0022\\u0022\\u0022"}')
def test_duplicates_are_found_as_by_the_reference(text: str) -> None:
    """A body is refused for a key twice exactly when a decoder that keeps all pairs sees one."""
    if has_twice(text):
        assert refusal(text.encode(), BodyLimits()).message == TWICE
        return
    parsed = parse(text.encode(), BodyLimits())

    assert {name: json.loads(value) for name, value in parsed.items()} == json.loads(text)


PIECES = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b'"a"', b'"a":', b"1", b"1e9", b"1e309", b"9" * 25, b"\\u",
    b"0022", b"\xff", b"\x00", b"\xc3\xa9", b" ", b"NaN", b"true", b"\\ud800", b'\\"', b"\xef\xbb\xbf",
]  # fmt: skip


@settings(max_examples=examples(600), derandomize=True, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=20).map(b"".join)
    | st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: b'{"a":' + b"".join(pieces) + b"}")
)
def test_any_bytes_are_parsed_or_refused(body: bytes) -> None:
    """Whatever the bytes, the answer is members or `BadBody`; what is accepted is JSON for Python too."""
    try:
        parsed = parse(body)
    except BadBody:
        return
    assert parsed.keys() == json.loads(body).keys()


def test_b9_structure_is_counted_before_parsing() -> None:
    """B9: exactly the limit passes, one more is refused; what strings hold does not count."""
    exact = BodyLimits(max_depth=16, max_structural=25)
    inside = b'"{[,:]}\\"' + b",:" * 50 + b'"'

    assert parse(b'{"a":[%b,%b1]}' % (inside, b"1," * 19), exact)
    assert "too many" in refusal(b'{"a":[%b,%b1]}' % (inside, b"1," * 20), exact).message


def test_b9_large_bodies() -> None:
    """B9: 24 MB of tiny elements are refused unparsed; as many inside one string are none."""
    limits = BodyLimits(max_depth=16, max_structural=200_000)

    assert "too many" in refusal(b'{"a":[' + b"{}," * 8_000_000 + b"1]}", limits).message
    assert "too many" in refusal(b'{"a":[' + b'"",' * 8_000_000 + b"1]}", limits).message
    assert parse(b'{"a":"' + b"{}," * 200_000 + b'"}', limits)
    assert refusal(b'"' * 300_000, limits)


@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 70_000), st.sampled_from([b'"', b'""', b"x"])), max_size=5))
def test_count_equals_count(runs: list[tuple[int, bytes]]) -> None:
    """Leaping over long stretches misses and doubles nothing."""
    body = b"".join(b"A" * length + end for length, end in runs)

    assert _count(body, b'"') == body.count(b'"')
    assert _count(b'"' * len(body), b'"') == len(body)


def test_large_strings_are_counted_right() -> None:
    """Quotes and structure on both sides of strings longer than any stride are all seen."""
    for length in (32_000, 32_768, 65_530, 65_536, 200_000):
        image = b"A" * length
        body = b'{"a":["%b","\\"",{"b":"%b"}],"c":1%b}'

        assert _count(body % (image, image, b""), b'"') == 13
        assert parse(body % (image, image, b""), BodyLimits())["c"] == b"1"
        assert refusal(body % (image, image, b',"a":"%b"' % image), BodyLimits()).param == "a"


def test_replaced_members() -> None:
    """Changed members are encoded in place, new ones follow, dropped ones are gone, all others are the same bytes."""
    fields = parse_object(b'{"model": "slug","t": 0.10, "drop":1,"s":"\\u00e9","big":18446744073709551615}', LIMITS)

    changes = {"model": "m-1", "new": {"x": [True, None]}, "raw": msgspec.Raw(b"1.0")}
    body = replace_members(fields, changes, frozenset({"drop", "no"}))

    assert body == (
        b'{"model":"m-1","t":0.10,"s":"\\u00e9","big":18446744073709551615,"new":{"x":[true,null]},"raw":1.0}'
    )


def test_replaced_nothing() -> None:
    """Without changes the members come back in order; the mapping given is left alone."""
    fields = parse_object(b'{"b":1 , "a": [1, 2]}', LIMITS)

    assert replace_members(fields, {}) == b'{"b":1,"a":[1, 2]}'
    assert replace_members(fields, {}, frozenset({"b"})) == b'{"a":[1, 2]}'
    assert list(fields) == ["b", "a"]
