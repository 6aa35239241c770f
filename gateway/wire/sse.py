"""Server-sent events, read from bytes by the HTML standard and written in one canonical form."""

from __future__ import annotations

from typing import NamedTuple, Protocol

_BOM = b"\xef\xbb\xbf"


class Event(NamedTuple):
    """One event. `name` is the `event:` value (b"" without one), `data` its data lines joined by LF, never empty."""

    name: bytes
    data: bytes


# A NamedTuple's own constructor is a Python function that calls this one: 0.2 µs more per frame.
_new = tuple.__new__


class Unreadable(Exception):
    """Nothing can be read from this stream any more; the text says why, for the log."""


class FrameTooLarge(Unreadable):
    """A line or an event is longer than the splitter's bound."""

    def __init__(self) -> None:
        super().__init__("event longer than the limit")


class Splitter(Protocol):
    """Takes a provider's stream apart into its events, whatever separates them there."""

    def feed(self, data: bytes) -> list[Event]:
        """
        The events that *data* completes, in order.

        Raises:
            Unreadable: By the call that meets what is wrong if it completes no event before it, else by the next call
                of `feed` or `close`. From then on by every call. A format that has faults of its own tells of it by
                such an event instead, its last: see `eventstream`.
        """

    def close(self) -> list[Event]:
        """The stream is over: its unfinished last event, if it can be one. Raises Unreadable as in `feed`."""


class FrameSplitter:
    """Cuts a byte stream into whole events, however the stream was cut into reads.

    Lines end at CR, LF or CRLF bytes and nowhere else. Comments, `id`, `retry`, unknown fields and events without data
    are dropped. Memory is bounded by *max_event_bytes* besides the read being handled; time is linear in the bytes fed.

    Args:
        max_event_bytes: Bound of one line without its ending, and of one event's joined data.
    """

    __slots__ = ("_after_cr", "_at_start", "_broken", "_data", "_data_bytes", "_idle", "_line", "_max", "_name")

    def __init__(self, max_event_bytes: int) -> None:
        self._max = max_event_bytes
        self._idle = False  # nothing pending, and the first line (that may carry a BOM) is behind us
        self._at_start = True
        self._after_cr = False  # the last byte was a CR that ended a line: a LF now belongs to it
        self._broken = False
        self._line = bytearray()  # the unfinished line
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0  # of `_data` joined; kept from its second line on

    def feed(self, data: bytes) -> list[Event]:
        """The events that *data* completes, in order.

        Raises:
            FrameTooLarge: By the call that meets the bound if it completes no event before it, else by the next call
                of `feed` or `close`: whole events are never lost. From then on by every call.
        """
        # Nearly every read of a live stream is one frame in canonical form; test_sse.py proves this branch needless.
        # `13 in` is a memchr; `b"\r" in` takes ten times as long, raising and dropping a TypeError on its way.
        if self._idle and 13 not in data and len(data) <= self._max:
            line, _, rest = data.partition(b"\n")
            name = b""
            if line[:7] == b"event: ":
                name = line[7:]
                line, _, rest = rest.partition(b"\n")
            if rest == b"\n" and line[:6] == b"data: " and len(line) > 6:
                return [_new(Event, (name, line[6:]))]
        elif self._idle and _is_one_crlf_frame(data) and len(data) <= self._max:
            return [_new(Event, (b"", data[6:-4]))]
        return self._read(data)

    def close(self) -> list[Event]:
        """The unfinished last event, if it has data: some upstreams end without the blank line (SSE-12).

        After a cut its data may be half a payload; only the caller can tell.

        Raises:
            FrameTooLarge: As in `feed`.
        """
        return self._read(b"\n\n")

    def _read(self, data: bytes) -> list[Event]:
        """Any bytes in any state."""
        if self._broken:
            raise FrameTooLarge
        if data:
            owed = self._after_cr and data[0] == 10
            self._after_cr = data[-1] == 13
            data = data[1:] if owed else data
        if 13 in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = data.split(b"\n")
        rest = lines.pop()
        if lines and self._line:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        self._line += rest
        events: list[Event] = []
        self._take(self._bounded(lines), events)
        if self._broken:
            self._line.clear()
            self._data = []
            if not events:
                raise FrameTooLarge
        self._idle = not (self._line or self._data or self._name or self._at_start or self._after_cr or self._broken)
        return events

    def _bounded(self, lines: list[bytes]) -> list[bytes]:
        """*lines* up to the first that is too long."""
        if len(self._line) > self._max:
            self._broken = True
        if lines and max(map(len, lines)) > self._max:
            self._broken = True
            lines = lines[: next(at for at, line in enumerate(lines) if len(line) > self._max)]
        return lines

    def _take(self, lines: list[bytes], events: list[Event]) -> None:
        """Whole lines, none of them too long."""
        if self._at_start and lines:
            lines[0] = lines[0].removeprefix(_BOM)
            self._at_start = False
        name, data = self._name, self._data
        for line in lines:
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif not line:
                if data and (data[0] or len(data) > 1):
                    events.append(_new(Event, (name, data[0] if len(data) == 1 else b"\n".join(data))))
                name, data = b"", []
                continue
            else:
                field, _, value = line.partition(b":")
                if field == b"event":
                    name = value.removeprefix(b" ")
                if field != b"data":
                    continue
                data.append(value.removeprefix(b" "))
            if len(data) > 1 and self._outgrown(data):
                self._broken = True
                break
        self._name, self._data = name, data

    def _outgrown(self, data: list[bytes]) -> bool:
        """Whether *data*, grown by one line to two or more, is too much for one event."""
        if len(data) == 2:
            self._data_bytes = len(data[0])
        self._data_bytes += 1 + len(data[-1])
        return self._data_bytes > self._max


def _is_one_crlf_frame(data: bytes) -> bool:
    """Whether *data* is one frame without a name, in the line endings that Google writes."""
    end = len(data) - 4
    return (
        data[:6] == b"data: "
        and end > 6
        and data.find(b"\r") == end
        and data[end:] == b"\r\n\r\n"
        and (data.find(b"\n") == end + 1)
    )


def frame(payload: bytes, name: bytes = b"") -> bytes:
    """One frame in the only form we write: LF endings, `event:` if named, one `data: ` line, a blank line.

    Args:
        payload: Compact JSON or `[DONE]`; must not hold CR or LF.
        name: The event's name; must not hold CR or LF.
    """
    if name:
        return b"event: %b\ndata: %b\n\n" % (name, payload)
    return b"data: %b\n\n" % payload
