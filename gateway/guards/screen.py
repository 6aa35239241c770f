"""What an answer passes through on its way out: one screen for all of it, a passage for each of its texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gateway.core.guarding import AnswerTerms, Check, GuardName, Verdict, never_late
from gateway.guards.holding import Holding
from gateway.guards.restoring import Restoring, as_is, in_json
from gateway.guards.sieve import Eye, Masks, Sieve
from gateway.guards.spelling import QuotedJson

_MONITOR_CHARS = 512  # between two looks at a text that leaves in any case


class Passage:
    """One text. What is only watched leaves at once; else it is held back, masked, and gets originals back."""

    __slots__ = ("_holding", "_restoring", "_watching", "feed")

    def __init__(self, watching: Holding | None, holding: Holding | None, restoring: Restoring | None) -> None:
        self._watching = watching
        self._holding = holding
        self._restoring = restoring
        self.feed: Callable[[str], str] = self._feed
        """What may leave, now that a piece has come."""
        if holding is not None and restoring is None:  # one call less for each frame
            self.feed = holding.feed

    def _feed(self, piece: str) -> str:
        if self._watching is not None:
            self._watching.feed(piece)
        if self._holding is not None:
            piece = self._holding.feed(piece)
        return self._restoring.feed(piece) if piece and self._restoring is not None else piece

    def ease(self) -> str:
        """What may leave since nothing has come for a while."""
        piece = self._holding.ease() if self._holding is not None else ""
        return self._restoring.feed(piece) if piece and self._restoring is not None else piece

    def flush(self) -> str:
        """The rest of it, now that something else comes; it may go on."""
        if self._watching is not None:
            self._watching.flush()
        piece = self._holding.flush() if self._holding is not None else ""
        return self._restoring.feed(piece) + self._restoring.flush() if self._restoring is not None else piece


class Screen:
    """
    Guards over one answer.

    Args:
        eyes: What it is looked at with.
        terms: The policy's.
        originals: What placeholders of the call stand for, where the caller is to get that back.
        taken: The last number of each kind among the call's placeholders; masks of the answer count on from it.
        check: Raises where the time of a long scan is over.
        whole: Whether the answer is here as a whole; else engines that have no sight of streams do not look.
    """

    def __init__(
        self,
        eyes: Sequence[Eye],
        terms: AnswerTerms,
        originals: Mapping[str, str],
        *,
        taken: Mapping[str, int] | None = None,
        check: Check = never_late,
        whole: bool = False,
    ) -> None:
        self._terms = terms
        self._originals = originals
        seeing = [eye for eye in eyes if whole or eye.engine.window_chars is not None]
        self._window = max((eye.engine.window_chars or 0 for eye in seeing), default=0)
        self._sieve = Sieve(seeing, Masks(taken or {}), check)
        self._looks = bool(seeing)
        self._is_strict = self._looks and terms.mode in ("redact", "block")

    @property
    def edits(self) -> bool:
        """Whether texts may leave as others than they came; else they only have to be heard."""
        return self._is_strict or bool(self._originals)

    @property
    def holds(self) -> bool:
        """Whether the ends of texts are held back until more of them can be told."""
        return self._is_strict

    @property
    def stopped(self) -> bool:
        """Whether the answer ends here."""
        return self._sieve.stopped

    @property
    def broken(self) -> bool:
        """Whether an engine failed; where the answer had to pass it, it is stopped."""
        return bool(self._sieve.failures)

    @property
    def failures(self) -> Sequence[tuple[GuardName, str]]:
        """The guards that failed, and the type of what each raised."""
        return self._sieve.failures

    def open(self, place: str, *, json: bool = False) -> Passage:
        """
        The passage of the text at *place*.

        Args:
            json: Whether it is JSON, and has to stay that.
        """
        return self._passage(place, json, self._terms.hold_chars if self._is_strict else _MONITOR_CHARS)

    def pass_whole(self, text: str, place: str, *, json: bool = False) -> str:
        """What leaves of a *text* that is here as a whole: it is looked at once."""
        passage = self._passage(place, json, 4 * len(text) + 4)
        return passage.feed(text) + passage.flush()

    def _passage(self, place: str, json: bool, hold: int) -> Passage:
        looking = restoring = None
        if self._looks:
            looking = Holding(self._sieve, self._window, hold, place, QuotedJson() if json else None)
        if self._originals:
            restoring = Restoring(self._originals, in_json if json else as_is)
        return Passage(None, looking, restoring) if self._is_strict else Passage(looking, None, restoring)

    def verdict(self) -> Verdict:
        """What is to be told of the answer, as far as it has been seen; of one that only gets originals back, off."""
        return self._sieve.verdict() if self._looks else Verdict("off")
