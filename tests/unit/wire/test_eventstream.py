"""AWS's binary event stream: the same events however it is cut, and no harm from what is none."""

from __future__ import annotations

import struct
import zlib
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.eventstream import MAX_HEADERS, UNREADABLE, BadMessage, Fault, MessageSplitter, read_headers
from gateway.wire.sse import Event
from tests.support.eventstream import Typed, error, event, exception, message
from tests.support.reads import bytewise, cut
from tests.support.scale import examples

MIB = 1024 * 1024
EVENT = {":message-type": "event", ":event-type": "e"}

payloads = st.binary(max_size=80)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
values = st.one_of(
    st.booleans().map(lambda yes: (Typed(0 if yes else 1, b""), yes)),
    st.integers(-(2**7), 2**7 - 1).map(lambda n: (Typed(2, struct.pack(">b", n)), n)),
    st.integers(-(2**15), 2**15 - 1).map(lambda n: (Typed(3, struct.pack(">h", n)), n)),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: (Typed(4, struct.pack(">i", n)), n)),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: (Typed(5, struct.pack(">q", n)), n)),
    st.binary(max_size=40).map(lambda raw: (Typed(6, struct.pack(">H", len(raw)) + raw), raw)),
    st.text(max_size=20).map(lambda t: (Typed(7, struct.pack(">H", len(t.encode())) + t.encode()), t)),
    st.integers(-(2**63), 2**63 - 1).map(lambda ms: (Typed(8, struct.pack(">q", ms)), ms)),
    st.binary(min_size=16, max_size=16).map(lambda raw: (Typed(9, raw), raw)),
)
headers = st.dictionaries(names.filter(lambda name: not name.startswith(":")), values, max_size=5)


def _message(more: dict[str, tuple[Typed, object]], payload: bytes, name: str) -> tuple[bytes, Event]:
    heads = {key: typed for key, (typed, _) in more.items()}
    raw = message({**heads, ":message-type": "event", ":event-type": name}, payload)
    return raw, Event(name.encode(), payload or b"{}")


messages = st.builds(_message, headers, payloads, names)
"""Messages, each with the event that it is."""


def read(*reads: bytes, bound: int = MIB) -> list[Event | str]:
    """All that a splitter gives for *reads* and the end; what it cannot read as the reason."""
    splitter = MessageSplitter(bound)
    events: list[Event | str] = []
    for data in reads:
        events += splitter.feed(data)
    events += splitter.close()
    return [event.data.decode() if type(event) is Fault and event.name == UNREADABLE else event for event in events]


def prelude(total: int, header_bytes: int) -> bytes:
    lengths = struct.pack(">II", total, header_bytes)
    return lengths + struct.pack(">I", zlib.crc32(lengths))


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.lists(messages, max_size=6), st.lists(st.integers(0, 10_000), max_size=8))
def test_any_partition_gives_the_same_events(sent: list[tuple[bytes, Event]], places: list[int]) -> None:
    """However a stream is cut into reads, its events are those that were written into it."""
    stream = b"".join(raw for raw, _ in sent)
    expected = [meant for _, meant in sent]

    assert read(stream) == expected
    assert read(*cut(stream, places)) == expected
    assert read(*bytewise(stream)) == expected


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.integers(0, 10_000), st.integers(1, 255))
def test_no_damage_goes_unnoticed(sent: list[tuple[bytes, Event]], place: int, flip: int) -> None:
    """Whichever byte is another one: whole messages before it come, then the stream is given up, and nothing after."""
    stream = bytearray(b"".join(raw for raw, _ in sent))
    place %= len(stream)
    stream[place] ^= flip
    ends = accumulate(len(raw) for raw, _ in sent)
    before = [meant for (_, meant), end in zip(sent, ends, strict=True) if end <= place]

    got = read(*bytewise(bytes(stream)))

    assert got == [*before, "damaged message"]
    assert read(bytes(stream)) == got


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.integers(0, 10_000))
def test_death_at_any_byte(sent: list[tuple[bytes, Event]], place: int) -> None:
    """A stream that ends anywhere gives the messages that were whole, and nothing else."""
    stream = b"".join(raw for raw, _ in sent)
    place %= len(stream) + 1

    got = read(stream[:place])

    assert got == [meant for _, meant in sent][: len(got)]
    assert sum(len(raw) for raw, _ in sent[: len(got)]) <= place


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=4))
def test_bytes_of_any_kind(stream: bytes, places: list[int]) -> None:
    """What is no event stream gives events or a refusal, the same for every partition, and no other exception."""
    assert read(*cut(stream, places)) == read(stream)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(headers)
def test_typed_headers(given_headers: dict[str, tuple[Typed, object]]) -> None:
    """A header of each of the ten types is read as what was written."""
    raw = message({name: typed for name, (typed, _) in given_headers.items()}, b"")
    block = raw[12:-4]

    got = read_headers(block)

    assert got == {name: value for name, (_, value) in given_headers.items()}
    assert [type(value) for value in got.values()] == [type(value) for _, value in given_headers.values()]


@pytest.mark.parametrize(
    ("published", "headers", "values"),
    [
        ("0000001d00000000fd528c5a7b27666f6f273a27626172277dc3653936", {}, {}),
        (
            "0000003d0000002007fd83960c636f6e74656e742d747970650700106170706c69636174696f6e2f6a736f6e"
            "7b27666f6f273a27626172277d8d9c08b1",
            {"content-type": "application/json"},
            {"content-type": "application/json"},
        ),
        (
            "0000002d0000001041c424b80a6576656e742d74797065040000a00c7b27666f6f273a27626172277d36f480a0",
            {"event-type": Typed(4, struct.pack(">i", 40972))},
            {"event-type": 40972},
        ),
    ],
)
def test_published_messages(published: str, headers: dict[str, str | Typed], values: dict[str, object]) -> None:
    """The test vectors that AWS's own clients share: payload `{'foo':'bar'}`, with no header, a text and a number."""
    raw = bytes.fromhex(published)

    assert message(headers, b"{'foo':'bar'}") == raw
    assert read_headers(raw[12:-17]) == values
    assert read(raw) == ["damaged message"]  # nothing is wrong with it but that it does not say what it is


def test_what_a_service_raises() -> None:
    """Exceptions and errors are events of a class of their own, an error's words its data."""
    stream = event("e", {}) + exception("throttlingException", {"message": "slow"}) + error("Oops", 'a "word"')

    got = MessageSplitter(MIB).feed(stream)

    assert got == [
        Event(b"e", b"{}"),
        Fault(b"throttlingException", b'{"message":"slow"}'),
        Fault(b"Oops", b'{"message":"a \\"word\\""}'),
    ]
    assert [type(one) for one in got] == [Event, Fault, Fault]


def test_each_event_with_the_read_that_completes_it() -> None:
    """Nothing is held back until the next read."""
    splitter = MessageSplitter(MIB)
    first, second = event("a", {"n": 1}), event("b", {"n": 2})

    got = [splitter.feed(first), splitter.feed(second[:-1]), splitter.feed(second[-1:] + first)]

    assert got == [[Event(b"a", b'{"n":1}')], [], [Event(b"b", b'{"n":2}'), Event(b"a", b'{"n":1}')]]


@pytest.mark.parametrize(
    ("total", "header_bytes"),
    [(0, 0), (15, 0), (16, 1), (17, 2), (2**32 - 1, 2**32 - 1), (100, 85), (2**20, 128 * 1024 + 1)],
)
def test_hostile_lengths(total: int, header_bytes: int) -> None:
    """Lengths that contradict each other are refused with the prelude, before anything is waited for."""
    assert read(prelude(total, header_bytes)) == ["damaged message"]


def test_lengths_beyond_the_bound() -> None:
    """A payload of the bound passes; one byte more is refused with the prelude, and so is a message of 4 GB."""
    whole = message(EVENT, b"x" * 100)

    assert read(whole, bound=100) == [Event(b"e", b"x" * 100)]
    assert read(whole[:12], bound=99) == ["event longer than the limit"]
    assert read(prelude(2**32 - 1, 0)) == ["event longer than the limit"]


def test_what_cannot_be_read_is_told_at_once() -> None:
    """The read that holds whole messages and a fault gives the messages, then the fault; nothing comes behind it."""
    splitter = MessageSplitter(MIB)

    got = splitter.feed(event("a", {}) + prelude(0, 0) + event("b", {}))

    assert got == [Event(b"a", b"{}"), Fault(UNREADABLE, b"damaged message")]
    assert (splitter.feed(event("c", {})), splitter.close()) == ([], [])


@pytest.mark.parametrize(
    "block",
    [
        b"\x05:a",  # a name that overruns
        b"\x01a",  # no type
        b"\x01a\x0a",  # a type that there is none of
        b"\x01a\x07\x00",  # half a length
        b"\x01a\x07\x00\x05ab",  # a text that overruns
        b"\x01a\x06\xff\xffab",  # bytes that overrun
        b"\x01a\x05\x00\x00",  # half a number
        b"\x01a\x09" + bytes(15),  # half an id
        b"\x01\xff\x00",  # a name that is no text
        b"\x01a\x07\x00\x01\xff",  # a text that is none
        b"\x01a\x00\x01a\x01",  # twice
        b"".join(b"\x02%c%c\x00" % (n // 16 + 65, n % 16 + 65) for n in range(MAX_HEADERS + 1)),
    ],
)
def test_hostile_headers(block: bytes) -> None:
    """Headers that are none are refused."""
    with pytest.raises(BadMessage):
        read_headers(block)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {":message-type": "event"},
        {":event-type": "e"},
        {":message-type": "exception", ":event-type": "e"},
        {":message-type": "error", ":error-message": "e"},
        {":message-type": "else", ":event-type": "e"},
        {":message-type": "event", ":event-type": Typed(6, b"\x00\x01e")},
    ],
)
def test_a_message_that_does_not_say_what_it_is(headers: dict[str, str | Typed]) -> None:
    """A message without its kind or its name is refused."""
    assert read(message(headers, b"{}")) == ["damaged message"]


def test_many_kinds_of_heads_are_not_all_kept() -> None:
    """Messages whose headers differ each time take no more memory than a stream of a few kinds."""
    splitter = MessageSplitter(MIB)

    got = [splitter.feed(event(f"e{n}", {})) for n in range(100)]

    assert got == [[Event(b"e%d" % n, b"{}")] for n in range(100)]
    assert len(splitter._heads) <= 16
