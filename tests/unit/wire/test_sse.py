"""Server-sent events: whatever the line endings, the reads and the decoration, the same events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.wire.sse import Event, FrameSplitter, FrameTooLarge, frame
from tests.support.reads import bytewise, cut
from tests.support.scale import examples

MIB = 1024 * 1024

# Everything the grammar knows, and neighbours of it; cut anywhere, so that keywords and line ends are split too.
PIECES = [
    b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"\r\r", b":", b": ping", b" ", b"data", b"data:", b"data: ",
    b"data:  ", b"data: {}", b"data: {}\n\n", b"event", b"event: ", b"event: x\ndata: y\n\n", b"event:x\n", b"id: 1\n",
    b"retry: 9\n", b"datax: 1\n", b"x", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xc2\x85",
    b"\x0b", b"\x0c", b"\x1c", b"\x00", b"\xf0\x9f",
]  # fmt: skip
streams = st.lists(st.sampled_from(PIECES), max_size=24).map(b"".join)
canonical = st.lists(
    st.builds(frame, st.binary(min_size=1, max_size=9).map(lambda b: b.translate(None, b"\r\n") or b"-"), st.just(b""))
    | st.builds(frame, st.just(b"{}"), st.sampled_from([b"", b"ping", b" two", b"a:b"])),
    max_size=6,
).map(b"".join)


def reference(stream: bytes) -> list[Event]:
    """The HTML standard, one byte after the other, with our two exceptions: no empty data, an unfinished end counts."""
    lines, line, skip = [], b"", False
    for at in range(len(stream)):
        byte = stream[at : at + 1]
        if byte == b"\n" and skip:
            skip = False
            continue
        skip = byte == b"\r"
        if byte in (b"\r", b"\n"):
            lines.append(line)
            line = b""
        else:
            line += byte
    lines += [line, b""]
    lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
    events: list[Event] = []
    data: list[bytes] = []
    name = b""
    for line in lines:
        if line == b"":
            if b"\n".join(data):
                events.append(Event(name, b"\n".join(data)))
            name, data = b"", []
            continue
        field, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if field == b"data":
            data.append(value)
        if field == b"event":
            name = value
    return events


def read(*reads: bytes, bound: int = MIB) -> list[Event | str]:
    """All that a splitter gives for *reads* and the end; `"too large"` ends the list where it gave up."""
    splitter = FrameSplitter(bound)
    events: list[Event | str] = []
    try:
        for data in reads:
            events += splitter.feed(data)
        events += splitter.close()
    except FrameTooLarge:
        events.append("too large")
    return events


@settings(max_examples=examples(400), derandomize=True, deadline=None)
@given(streams, st.lists(st.integers(0, 10_000), max_size=8))
def test_any_partition_gives_the_events_of_the_standard(stream: bytes, places: list[int]) -> None:
    """However a stream is cut into reads, its events are those of the HTML standard."""
    expected = reference(stream)

    assert read(stream) == expected
    assert read(*cut(stream, places)) == expected
    assert read(*bytewise(stream)) == expected


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(streams, st.lists(st.integers(0, 10_000), max_size=8), st.integers(1, 12))
def test_any_partition_meets_the_bound_at_the_same_event(stream: bytes, places: list[int], bound: int) -> None:
    """The bound cuts a stream off behind the same event, however it arrives."""
    whole = read(stream, bound=bound)

    assert read(*cut(stream, places), bound=bound) == whole
    assert read(*bytewise(stream), bound=bound) == whole


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(canonical, streams, canonical, st.sampled_from([b"\n", b"\r\n"]), st.integers(6, 40))
def test_the_fast_branches_equal_the_slow_one(first: bytes, odd: bytes, last: bytes, ending: bytes, bound: int) -> None:
    """Reads of whole frames, in our line endings or Google's, around any other bytes, give what single bytes give."""
    singles = [(block + b"\n\n").replace(b"\n", ending) for block in last.split(b"\n\n")[:-1]]
    first, last = first.replace(b"\n", ending), last.replace(b"\n", ending)

    fast = read(frame(b"0"), first, odd, *singles, last, bound=bound)

    assert read(*bytewise(frame(b"0") + first + odd + last + last), bound=bound) == fast


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b"\r"])
def test_sse_01_every_line_ending(ending: bytes) -> None:
    """SSE-01: every event comes out of the very read that completes it, whatever ends the lines."""
    splitter = FrameSplitter(MIB)

    given = [splitter.feed(frame(b"%d" % n).replace(b"\n", ending)) for n in range(3)]

    assert given == [[Event(b"", b"0")], [Event(b"", b"1")], [Event(b"", b"2")]]


def test_sse_04_characters_cut_by_reads() -> None:
    """SSE-04: characters whose bytes arrive in two reads stay whole."""
    stream = frame('{"content":"北🦀é"}'.encode())

    assert read(*bytewise(stream)) == [Event(b"", '{"content":"北🦀é"}'.encode())]


def test_sse_06_half_an_event_behind_whole_ones() -> None:
    """SSE-06: whole events come at once and in order, the half one when its rest is here."""
    splitter = FrameSplitter(MIB)
    b = frame(b'{"content":"b"}')

    first = splitter.feed(frame(b"R") + frame(b"a") + b[:12])
    second = splitter.feed(b[12:] + frame(b"FIN") + frame(b"[DONE]"))

    assert [event.data for event in first] == [b"R", b"a"]
    assert [event.data for event in second] == [b'{"content":"b"}', b"FIN", b"[DONE]"]


def test_sse_07_no_space_after_the_colon() -> None:
    """SSE-07: the space after the colon is optional, and only one is taken."""
    assert read(b"data:{}\n\nevent:x\ndata:[DONE]\n\ndata:  y\n\n") == [
        Event(b"", b"{}"),
        Event(b"x", b"[DONE]"),
        Event(b"", b" y"),
    ]


def test_sse_09_comments_are_no_events() -> None:
    """SSE-09: comments vanish, between events and inside them."""
    assert read(b": PROCESSING\n\n" * 3 + b"data: a\n: keep-alive\n\n:\n\n") == [Event(b"", b"a")]


def test_sse_11_control_blocks_are_no_events() -> None:
    """SSE-11: blocks with only `retry:`, `id:`, an empty `data:` or an event name vanish and leave nothing behind."""
    assert read(b"retry: 1000\n\ndata:\n\ndata\n\nid: 5\n\nevent: lost\n\ndata: a\n\n") == [Event(b"", b"a")]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n", b"\n\n"])
def test_sse_12_the_last_event_needs_no_blank_line(end: bytes) -> None:
    """SSE-12: an event that the end of the stream leaves unfinished is given by `close`, once."""
    splitter = FrameSplitter(MIB)

    given = splitter.feed(frame(b"a") + b"event: x\ndata: [DONE]" + end)
    given += splitter.close()

    assert given == [Event(b"", b"a"), Event(b"x", b"[DONE]")]


def test_sse_15_only_cr_and_lf_end_lines() -> None:
    """SSE-15: U+2028, U+2029, U+0085, VT, FF and FS are content."""
    payload = "a\u2028b\u2029c\u0085d\u000be\u000cf\u001cg".encode()

    assert read(frame(payload), frame(payload)) == [Event(b"", payload)] * 2


def test_sse_16_a_very_long_line() -> None:
    """SSE-16: a line of 700,000 bytes in reads of 64 KiB is one event."""
    stream = frame(b"x" * 700_000)

    assert read(*(stream[at : at + 65_536] for at in range(0, len(stream), 65_536))) == [Event(b"", b"x" * 700_000)]


def test_one_leading_byte_order_mark() -> None:
    """A BOM before the first line is dropped, even cut in three; anywhere else it is part of a field's name."""
    mark = b"\xef\xbb\xbf"

    assert read(*bytewise(mark + b"data: a\n\n")) == [Event(b"", b"a")]
    assert read(mark + mark + b"data: a\n\n" + mark + b"data: b\n\n" + b"data: c\n\n") == [Event(b"", b"c")]


def test_reads_that_only_look_canonical() -> None:
    """Between events, a read that looks like one frame is still read by the standard: CR in it, no data, a late BOM."""
    splitter = FrameSplitter(MIB)
    reads = [
        b"", b"data: 1\n\n", b"\xef\xbb\xbfdata: no\n\n", b"data: a\rdata: b\n\n", b"data: \n\n",
        b"event: x\ndata: \n\n", b"event: x\rid: 1\ndata: y\n\n", b"data: 2\n\n",
        b"data: 3\r\n\r\n", b"data: \r\n\r\n", b"data: 4\ndata: 5\r\n\r\n", b"data: 6\r\ndata: 7\r\n\r\n",
    ]  # fmt: skip

    given = [[(event.name, event.data) for event in splitter.feed(data)] for data in reads]

    crlf: list[Any] = [[(b"", b"3")], [], [(b"", b"4\n5")], [(b"", b"6\n7")]]
    assert given == [[], [(b"", b"1")], [], [(b"", b"a\nb")], [], [], [(b"x", b"y")], [(b"", b"2")], *crlf]


def test_data_lines_are_joined() -> None:
    """Several data lines are one event, joined by LF; of several names the last counts."""
    assert read(b"event: a\ndata: 1\nevent: b\ndata:\ndata: 3\n\n") == [Event(b"b", b"1\n\n3")]


def test_whole_events_before_the_oversized_one_are_given_first() -> None:
    """The read that meets the bound gives the events before it; every later call raises."""
    splitter = FrameSplitter(10)

    assert splitter.feed(frame(b"a") + frame(b"b") + frame(b"x" * 11) + frame(b"c")) == [
        Event(b"", b"a"),
        Event(b"", b"b"),
    ]
    with pytest.raises(FrameTooLarge):
        splitter.feed(frame(b"d"))
    with pytest.raises(FrameTooLarge):
        splitter.close()


@pytest.mark.parametrize("ended", [b"", b"\n", b"\n\n"])
def test_the_bound_is_exact(ended: bytes) -> None:
    """A line of exactly the bound passes, one byte more does not, with or without its ending."""
    assert read(b"data: 1234" + ended, bound=10) == [Event(b"", b"1234")]
    assert read(b"data: 12345" + ended, bound=10) == ["too large"]


def test_many_small_data_lines_meet_the_bound() -> None:
    """An event of endless short data lines is as oversized as one long line; endless comments are not."""
    assert read(b"data: 1\n" * 6, bound=10) == ["too large"]
    assert read(b"data: 1\n" * 5 + b"\n", bound=10) == [Event(b"", b"1\n1\n1\n1\n1")]
    assert read(b"data:\n" * 20, bound=10) == ["too large"]
    assert read(b": ping\n" * 1000 + b"id: 1\n" * 1000 + b"data: 1\n\n", bound=10) == [Event(b"", b"1")]


def test_h17_no_newline_in_64_mb() -> None:
    """H17: a line without end is given up within one read of the bound, and nothing of it is kept."""
    splitter = FrameSplitter(MIB)
    for _ in range(16):
        assert splitter.feed(b"x" * 65_536) == []

    for _ in range(1024 - 16):
        with pytest.raises(FrameTooLarge):
            splitter.feed(b"x" * 65_536)

    assert len(splitter._line) == 0


def test_h17_a_million_tiny_events() -> None:
    """H17: a million tiny events in one read take linear time (the suite's time limit is the measure)."""
    events = FrameSplitter(MIB).feed(b"data: x\n\n" * 1_000_000)

    assert len(events) == 1_000_000


def test_h17_an_event_byte_by_byte() -> None:
    """H17: an event of 1 MiB in reads of one byte takes linear time (re-scanning would take minutes)."""
    splitter = FrameSplitter(2 * MIB)
    one = [b"x"] * MIB

    splitter.feed(b"data: ")
    for byte in one:
        splitter.feed(byte)

    assert splitter.feed(b"\n\n") == [Event(b"", b"x" * MIB)]


def test_frame_is_canonical() -> None:
    """A frame is LF, at most a name, one data line with one space, a blank line; and reads back as itself."""
    assert frame(b"[DONE]") == b"data: [DONE]\n\n"
    assert frame(b"{}", b"ping") == b"event: ping\ndata: {}\n\n"
    assert read(frame(b"{}", b"ping"), frame(b"{}", b"ping")) == [Event(b"ping", b"{}")] * 2
