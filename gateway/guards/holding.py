"""
One text on its way out: what of it may leave, while it still grows.

Its end is held back, as far as what begins there could be something that a guard looks for. What a mask stands for has
not left, no character of it, and neither has anything that a stop stands in front of. Texts are looked at whenever they
have grown by a step, whatever the pieces are in which they come, so the same text leaves in the same form; but for what
cannot be told within the window, of which more is masked where more of the text is here at once.
"""

from __future__ import annotations

import re

from gateway.core.guarding import GLANCE_CHARS
from gateway.guards.sieve import VALUE_CHARS, Sieve, Span
from gateway.guards.spelling import Plain, Spelling

_CONTEXT = 288  # characters that engines see before what is undecided: words that tell what it is, or excuse it
_MAX_KEPT = 4096  # of one finding that goes on; of longer ones the middle is forgotten
_PIECE = 4096  # characters that are taken at a time
_FAR = 1024  # from there on looks are further apart: what is wide enough for all windows can be seen at once
# A value has no blank in it behind a small letter: `4111 1111`, `B 1234 XYZ` and `0812-34` can go on, `so 4` as `4`.
# Letters of scripts without capitals, or without blanks, begin no value either.
_LAST_RUN = re.compile(r"(?:[!-~\uff01-\uff5e\d]|(?<![a-z])[ \t])*\Z")


class Holding:
    """
    What is held back of one text.

    Args:
        window: How many characters behind its beginning a finding can be told.
        hold: The most characters that are held back, if nothing is found in them; more than one.
    """

    __slots__ = (
        "_alert", "_at", "_due", "_glanced", "_hold", "_is_plain", "_masked", "_place", "_sieve", "_spelling", "_step",
        "_text", "_window",
    )  # fmt: skip

    def __init__(self, sieve: Sieve, window: int, hold: int, place: str, spelling: Spelling | None = None) -> None:
        self._sieve = sieve
        self._step = max(1, hold // 4)
        self._window = min(window, hold - self._step)
        self._hold = hold
        self._place = place
        self._spelling = spelling or Plain()
        self._is_plain = spelling is None
        self._text = ""  # what has been decided of late, and what has not
        self._at = 0  # where in it the undecided begins
        self._glanced = 0  # how much of it has been glanced at
        self._alert = -_FAR  # how much that was when something was seen
        self._masked = -1  # where in it the last mask ended
        self._due = self._step  # its length at which it is looked at again

    def feed(self, piece: str) -> str:
        """What may leave, now that *piece* has come; nothing after a stop."""
        self._text += piece
        if len(self._text) < self._due:
            return ""
        if len(piece) > _PIECE:
            self._text = self._text[: -len(piece)]
            return "".join([self.feed(piece[at : at + _PIECE]) for at in range(0, len(piece), _PIECE)])
        out: list[str] = []
        while len(self._text) >= self._due and not self._sieve.stopped:
            if len(self._text) - self._due >= _FAR:
                self._due += (_FAR - 1) // self._step * self._step
            length = self._due
            out.append(self._decide(length, length - self._window))
            self._due += self._step
            self._forget(length)
        return "".join(out)

    def ease(self) -> str:
        """
        What may leave since nothing has come for a while: all but a last run that could be the beginning of a value.

        What is told of by several words may begin in what has left then. It is found all the same; a mask covers what
        has not left of it.
        """
        length = len(self._text)
        run = _LAST_RUN.search(self._text, max(self._at, length - self._hold))
        return self._decide(length, run.start() if run is not None else length)

    def flush(self) -> str:
        """The text is over, or something else comes in between: the rest of it. It may go on."""
        return self._decide(len(self._text), len(self._text))

    def _decide(self, length: int, limit: int) -> str:
        """What leaves of the first *length* characters, when nothing that begins before *limit* is undecided."""
        at, sieve = self._at, self._sieve
        if limit <= at or sieve.stopped:
            return ""
        text = self._text if length == len(self._text) else self._text[:length]
        view = text if self._is_plain else self._spelling.view(text)
        if sieve.glance(view[max(0, self._glanced - GLANCE_CHARS) :]):
            self._alert = length
        self._glanced = length
        spans = sieve.look(view) if self._alert > at - 2 * GLANCE_CHARS else None
        if sieve.stopped:  # an engine has failed
            return ""
        if not spans:
            self._at = limit
            return text[at:limit]
        return self._covered(text, limit, spans)

    def _covered(self, text: str, limit: int, spans: list[Span]) -> str:
        """What leaves of *text*, with masks over *spans*."""
        at, sieve, out = self._at, self._sieve, list[str]()
        for span in spans:
            start, end = self._spelling.whole(text, span.start, span.end)
            if end <= at:
                continue
            if start >= limit:
                break
            has_begun, start = start < at, max(start, at)
            out.append(text[at:start])
            at = start
            if span.stops:
                sieve.stop(span, self._place)
                limit = at
                break
            if end > limit:  # where it ends cannot be told yet
                limit = at
                break
            if not has_begun or at != self._masked:  # else there is a mask for it already
                sieve.count(span, self._place)
                mask = sieve.masks.mask(span.kind, text[span.start : span.end])
                out.append(self._spelling.masked(text, start, end, mask))
            at = self._masked = end
        if limit > at:
            out.append(text[at:limit])
            at = limit
        self._at = at
        return "".join(out)

    def _forget(self, length: int) -> None:
        """Keep no more than what has to be seen again; the first *length* characters have been looked at."""
        if length - self._at > _MAX_KEPT:
            first, last = self._at + VALUE_CHARS, length - VALUE_CHARS
            self._text = self._text[:first] + self._text[last:]
            self._due -= last - first
            self._glanced -= last - first
            self._alert = max(self._alert - (last - first), min(self._alert, first))
        if self._at > 2 * _CONTEXT:
            cut = self._spelling.forget(self._text, self._at - _CONTEXT)
            self._text = self._text[cut:]
            self._at -= cut
            self._due -= cut
            self._glanced -= cut
            self._alert -= cut
            self._masked -= cut
