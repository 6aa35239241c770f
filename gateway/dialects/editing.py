"""
Frames of a client's own dialect, changed or held back on their way out.

What a lane writes is in one form, so most frames can be told by what they have in common with the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from gateway.core.errors import CONTENT_CUT, GUARDS_CUT, Failure
from gateway.dialects.failures import malformed
from gateway.dialects.seam import UNREADABLE
from gateway.dialects.template import RELEARN_AFTER, Template, learn
from gateway.guards.screen import Passage, Screen

_FRAME_END = b"\n\n"


class Take(Protocol):
    """Given a text of an answer by its name, or a piece of it, and whether it is JSON: what leaves of it."""

    def __call__(self, name: str, text: str, *, json: bool = False) -> str: ...


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
        self._usual: tuple[Template, Passage] | None = None
        self._misfits = RELEARN_AFTER
        self._is_over = False  # the error frame has been seen

    def feed(self, frames: bytes) -> bytes:
        """What leaves for whole *frames*; of those behind one that ends the answer nothing."""
        usual = self._usual
        if usual is not None and (found := usual[0].match(frames)) is not None:
            self._misfits = 0
            text = found[0]
            out = usual[1].feed(text)
            if self._screen.stopped:
                self._stop()
            if self._holds:
                self.is_restless = True
            if out == text:
                return frames
            return usual[0].write(out) if out else b""
        if frames.count(_FRAME_END) > 1:
            return self._each(frames)
        self._misfits += 1
        return self._noticed(self._read(frames))

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
        out, failure = list[bytes](), self.failure
        for one in frames.split(_FRAME_END)[:-1]:
            out.append(self.feed(one + _FRAME_END))
            if self.failure is not failure:
                break
        return b"".join(out)

    def _read(self, frames: bytes) -> bytes:
        head, found, data = frames[:-2].partition(b"data: ")
        if not found:
            return frames
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
        self._usual = None
        self.failure = self.failure or (GUARDS_CUT if self._screen.broken else CONTENT_CUT)

    def _passage(self, key: Key, place: str, *, json: bool = False) -> Passage:
        passage = self._passages.get(key)
        if passage is None:
            passage = self._passages[key] = self._screen.open(place, json=json)
        return passage

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
        self._usual, self._misfits = None, RELEARN_AFTER
        return rest

    def _give_up(self) -> bytes:
        """The answer broke: what may leave of what is held back. No more does: it could be half a value."""
        out, self._is_over = self.ease(), True
        return out

    def _remember(self, frames: bytes, member: bytes, text: str, passage: Passage) -> None:
        """Learn from a frame that has nothing but *text* in it."""
        if self._misfits >= RELEARN_AFTER and (template := learn(frames, frames, member, text)) is not None:
            self._usual, self._misfits = (template, passage), 0

    @abstractmethod
    def _take(self, name: bytes, data: bytes) -> bytes | None:
        """What leaves for one event; None for the event as it is. Raises one of UNREADABLE."""

    @abstractmethod
    def _say(self, key: Key, text: str) -> bytes:
        """A frame of our own with *text* of the passage *key*."""


def passes(said: Mapping[str, object]) -> bool:
    """Whether *said* has something besides empty texts."""
    return any(value not in ("", None, [], {}) for value in said.values())
