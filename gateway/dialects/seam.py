"""What a client has heard of an answer that broke, and the place where another one goes on.

Both are said in frames of the client's dialect, as they leave: whatever the providers speak, a continuation is a matter
of these frames alone. Only models that are to be continued pay for reading them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import msgspec

from gateway.wire.sse import frame

MAX_TOLD_CHARS = 262_144  # some 64,000 tokens, more than nearly all models answer; what is longer is not continued
# Lanes pass on what they do not look at: a stranger's members may be absent, of any type, or numbers of over 64 bits.
UNREADABLE = (msgspec.DecodeError, OverflowError, RecursionError, KeyError, TypeError, AttributeError)


class Joint:
    """
    The text behind the seam, without what the client has heard.

    Args:
        echo: What a provider may repeat before it goes on: all of what it was given, or nothing.
        blanks: White space that the client has heard and the provider was not given, as most refuse it at the end; the
            provider may write it again, in part.
    """

    def __init__(self, echo: str, blanks: str) -> None:
        self._echo = echo
        self._blanks = blanks
        self._held = ""

    def take(self, text: str) -> str:
        """What of *text* is new; "" also while that cannot be told."""
        if self._echo:
            held = self._held = self._held + text
            if self._echo.startswith(held):
                return ""
            text = held.removeprefix(self._echo)
            self._echo = self._held = ""
        if self._blanks and text:
            known = _common(self._blanks, text)
            self._blanks = self._blanks[known:] if known == len(text) else ""
            text = text[known:]
        return text

    def rest(self) -> str:
        """What was held back, now that nothing more comes."""
        held, self._held = self._held, ""
        return "" if held == self._echo else held


class Seam(ABC):
    """
    One answer in a client's frames: `hear` those of the first part, `join` those of the second.

    Attributes:
        text: All the text that the client has heard.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._chars = 0
        self._is_text = True
        self._joint = Joint("", "")

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @property
    def is_open(self) -> bool:
        """Whether nothing but text was heard, some of it, and more of it could follow."""
        return self._is_text and any(text.strip() for text in self._texts)

    def hear(self, frames: bytes) -> None:
        """Note what the client is told by whole *frames*."""
        if not self._is_text:
            return
        for name, data in _split(frames):
            try:
                self._is_text = self._hear(name, data)
            except UNREADABLE:
                self._is_text = False
            if not self._is_text or self._chars > MAX_TOLD_CHARS:
                self._is_text, self._texts = False, []
                return

    def resume(self, echoes: bool) -> None:
        """The second part begins, of a provider that was given the text without the blanks at its end."""
        given = self.text.rstrip()
        self._joint = Joint(given if echoes else "", self.text[len(given) :])

    def join(self, frames: bytes) -> bytes:
        """Whole *frames* of the second part, as more of the first."""
        out: list[bytes] = []
        for name, data in _split(frames):
            try:
                out.append(self._join(name, data))
            except UNREADABLE:
                out.append(frame(data, name))
        return b"".join(out)

    def _add(self, text: str) -> None:
        self._texts.append(text)
        self._chars += len(text)

    @abstractmethod
    def _hear(self, name: bytes, data: bytes) -> bool:
        """Note one event; whether it was text, or nothing at all."""

    @abstractmethod
    def _join(self, name: bytes, data: bytes) -> bytes:
        """The frames of one event."""


def _common(one: str, other: str) -> int:
    """How many characters both begin with."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


def _split(frames: bytes) -> list[tuple[bytes, bytes]]:
    """Name and data of each of our own frames, which are written in one form; comments are none."""
    events = []
    for one in frames.split(b"\n\n"):
        head, found, data = one.partition(b"data: ")
        if found:
            events.append((head.removeprefix(b"event: ").rstrip(b"\n"), data))
    return events
