"""
Frames of a client's own dialect, changed or held back on their way out.

What a lane writes is in one form, so most frames can be told by what they have in common with the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

import msgspec
from msgspec import Raw

from gateway.core.errors import CONTENT_CUT, GUARDS_CUT, Failure
from gateway.dialects.failures import malformed
from gateway.dialects.seam import UNREADABLE
from gateway.dialects.template import RELEARN_AFTER, learn
from gateway.dialects.unlisted import Take, edit_others
from gateway.guards.screen import Passage, Screen
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame

_FRAME_END = b"\n\n"
_DONE = b"data: [DONE]"
_string = msgspec.json.Decoder(str).decode


class Key(NamedTuple):
    """One text of an answer: of which choice or block, and its name there."""

    part: int
    name: str


class TextEditor(ABC):
    """
    Passes the texts of an answer through a *screen*. Frames of what is only watched leave as they are; behind what ends
    the answer nothing leaves but the error.

    Attributes:
        is_restless: Whether something came since the last silence that is held back.
    """

    def __init__(self, screen: Screen) -> None:
        self.failure: Failure | None = None
        self.is_restless = False
        self._screen = screen
        self._edits, self._holds = screen.edits, screen.holds
        self._passages: dict[Key, Passage] = {}
        self._feed_usual: Callable[[str], str]
        self._forget_usual()
        self._misfits = RELEARN_AFTER
        self._is_over = False  # the error frame has been seen
        self._whole_changed = False  # whether a text of this event that is no piece leaves as another

    def feed(self, frames: bytes) -> bytes:
        """What leaves for whole *frames*; of those behind one that ends the answer nothing."""
        if frames.startswith(self._head) and frames.endswith(self._tail):
            try:
                text = _string(frames[self._start : self._end])
            except msgspec.DecodeError:
                pass  # several frames, or another string before the last half
            else:
                return self._pass_usual(frames, text)
        if frames.count(_FRAME_END) > 1:
            return self._each(frames)
        self._misfits += 1
        return self._noticed(self._read(frames))

    def _pass_usual(self, frames: bytes, text: str) -> bytes:
        """A frame that differs from the one before in its *text* alone."""
        self._misfits = 0
        out = self._feed_usual(text)
        if self._holds:
            self.is_restless = True
        told = frames
        if out != text:
            told = self._head + encode_basestring_ascii(out).encode() + self._tail if out else b""
        if self._screen.stopped:
            self._stop()
        return told

    def ease(self) -> bytes:
        """Nothing has come for a while: what may leave for that."""
        self.is_restless = False
        out = b"".join([self._say(key, said) for key, one in self._passages.items() if (said := one.ease())])
        return self._noticed(out)

    def end(self) -> bytes:
        """All that is held back."""
        if self._is_over:
            return b""
        return self._noticed(b"".join([self._flush(key) for key in list(self._passages)]))

    def _each(self, frames: bytes) -> bytes:
        out, failure, each = list[bytes](), self.failure, frames.split(_FRAME_END)[:-1]
        for number, one in enumerate(each):
            out.append(self.feed(one + _FRAME_END))
            if self.failure is not failure:
                # a stream that broke by itself has its error there and has to have its end, whatever was held back
                out += [last + _FRAME_END for last in each[number + 1 :] if last == _DONE]
                break
        return b"".join(out)

    def _read(self, frames: bytes) -> bytes:
        head, found, data = frames[:-2].partition(b"data: ")
        if not found:
            return frames
        self._whole_changed = False
        try:
            out = self._take(head.removeprefix(b"event: ").rstrip(b"\n"), data)
        except UNREADABLE:
            if self._edits:
                self.failure = self.failure or malformed("a frame that guards cannot read")
                return b""
            return frames
        self.is_restless |= self._holds
        return frames if out is None else out

    def _noticed(self, out: bytes) -> bytes:
        if self._screen.stopped:
            self._stop()
        return out

    def _stop(self) -> None:
        self._forget_usual()
        self.failure = self.failure or (GUARDS_CUT if self._screen.broken else CONTENT_CUT)

    def _passage(self, key: Key, place: str, *, json: bool = False) -> Passage:
        passage = self._passages.get(key)
        if passage is None:
            passage = self._passages[key] = self._screen.open(place, json=json)
        return passage

    def _pass_whole(self, text: str, place: str, *, json: bool) -> str:
        """What leaves of a text that is no piece; an event that has one is not learnt from."""
        out = self._screen.pass_whole(text, place, json=json)
        self._whole_changed |= out != text
        return out

    def _take_whole(self, place: str) -> Take:
        """What takes texts of an event that are no pieces."""

        def take(name: str, text: str, *, json: bool = False, whole: bool = True) -> str:
            return self._pass_whole(text, f"{place}.{name}".removeprefix("."), json=json)

        return take

    def _event_with(self, members: dict[str, Raw], known: frozenset[str], name: bytes = b"") -> bytes | None:
        """What leaves of an event of which nothing is *known* but that; None for the event as it is."""
        others = edit_others(members, known, self._take_whole(""))
        if not self._whole_changed or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, others)), name)

    def _flush(self, key: Key) -> bytes:
        """The rest of one text, as a frame of our own."""
        said = self._passages[key].flush()
        return self._say(key, said) if said else b""

    def _close(self, index: int) -> bytes:
        """A choice or block is over: the rest of its texts, and they are forgotten."""
        closing = [key for key in self._passages if key.part == index]
        rest = b"".join([self._flush(key) for key in closing])
        for key in closing:
            del self._passages[key]
        self._forget_usual()
        self._misfits = RELEARN_AFTER
        return rest

    def _give_up(self) -> bytes:
        """The answer broke: what may leave of what is held back. No more does: it could be half a value."""
        out, self._is_over = self.ease(), True
        return out

    def _remember(self, frames: bytes, member: bytes, text: str, passage: Passage) -> None:
        """Learn from a frame that has nothing but *text* in it."""
        if self._whole_changed:
            return
        if self._misfits >= RELEARN_AFTER and (template := learn(frames, frames, member, text)) is not None:
            self._head, self._tail = template.out_halves
            self._start, self._end = len(self._head), -len(self._tail)
            self._feed_usual = passage.feed
            self._misfits = 0

    def _forget_usual(self) -> None:
        """No frame is like the one before."""
        self._head = self._tail = b"\n"  # no frame of ours begins so
        self._start, self._end = 1, -1
        self._feed_usual = str

    @abstractmethod
    def _take(self, name: bytes, data: bytes) -> bytes | None:
        """What leaves for one event; None for the event as it is. Raises one of UNREADABLE."""

    @abstractmethod
    def _say(self, key: Key, text: str) -> bytes:
        """A frame of our own with *text* of the passage *key*."""


def passes(said: Mapping[str, object]) -> bool:
    """Whether *said* has something besides empty texts."""
    return any(value not in ("", None, [], {}) for value in said.values())
