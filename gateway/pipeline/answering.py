"""What looks at answers before they leave, by a key's policy: guards, originals that come back, rules for tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gateway.core.errors import CONTENT_CUT, GUARDS_CUT, Failure
from gateway.core.exchange import Exchange
from gateway.core.guarding import DEADLINE_S, GUARDS, RESPONSE_CONTENT, Engine, GuardName, Verdict, never_late
from gateway.dialects.base import Completion, Lane
from gateway.dialects.called import denied_call
from gateway.dialects.edited import TEXT_EDITORS, EditedLane
from gateway.dialects.tool_editors import TOOL_EDITORS
from gateway.guards.screen import Screen
from gateway.guards.sieve import Eye, make_eyes
from gateway.pipeline.scanning import INLINE_BYTES, Means

WAIT_S = 3.0  # for a thread: longer than calls wait, as an answer has been paid for


class AnswerLate(Exception):
    """Raised within a scan of a whole answer whose time is over."""


def nobody_hears(request_id: str, guard: GuardName, reason: str) -> None:
    """Of no failure."""


@dataclass(frozen=True, slots=True)
class Answering:
    """
    The engines that answers may be looked at with.

    Attributes:
        means: For whole answers that are long; None where they are looked at in place.
        failed: Told of an engine that failed: the request's id, the guard, and why, in a word of ours.
    """

    engines: Mapping[GuardName, Engine] = field(default_factory=dict)
    means: Means | None = None
    failed: Callable[[str, GuardName, str], None] = nobody_hears

    def way_out(self, exchange: Exchange) -> WayOut | None:
        """What the answer to *exchange* goes through; None where nothing looks at it."""
        rules = exchange.key.rules
        if rules.answers.mode == "off" and not exchange.originals and rules.tools.is_open:
            return None
        eyes: tuple[Eye, ...] = ()
        if rules.answers.mode != "off":
            wanted = [name for name in GUARDS if name in rules.answers.guards and name in self.engines]
            sights = {name: rules.sight(name) for name in wanted}
            eyes = make_eyes([self.engines[name] for name in wanted], rules.answers.mode, sights)
        return WayOut(exchange, eyes, self)


class WayOut:
    """
    What one answer goes through.

    Attributes:
        hold_s: How long of silence lets go what is held back of a stream.
    """

    def __init__(self, exchange: Exchange, eyes: Sequence[Eye], answering: Answering) -> None:
        rules, dialect = exchange.key.rules, exchange.call.dialect
        self._exchange = exchange
        self._eyes = eyes
        self._answering = answering
        self._looks = rules.answers.mode != "off" or bool(exchange.originals)
        self._screen = self._new_screen(whole=not exchange.call.stream)
        self._texts = TEXT_EDITORS[dialect](self._screen) if self._looks else None
        self._tools = TOOL_EDITORS[dialect](rules.tools) if not rules.tools.is_open else None
        self._denied: Failure | None = None  # by the rules for tools, of a whole answer
        self.hold_s = rules.answers.hold_s

    @property
    def is_restless(self) -> bool:
        """Whether something came since the last silence that is held back for what may follow."""
        return self._texts is not None and self._texts.is_restless

    @property
    def has_ended(self) -> bool:
        """Whether nothing more of a stream may leave but its end."""
        return any(editor is not None and editor.failure is not None for editor in (self._texts, self._tools))

    def over(self, lane: Lane) -> EditedLane:
        """
        *lane* as the client hears it. Of an answer in two parts, both go through the same.

        Calls are judged behind masks and originals: by the arguments that the client gets.
        """
        return EditedLane(lane, tuple(editor for editor in (self._texts, self._tools) if editor is not None))

    def ease(self) -> bytes:
        """What may leave of what is held back, since nothing has come for a while."""
        frames = self._texts.ease() if self._texts is not None else b""
        return self._tools.feed(frames) if self._tools is not None else frames

    async def look_at(self, completion: Completion, size: int) -> None:
        """
        Have a whole answer of *size* bytes looked at; what leaves of it is put in its place.

        Raises:
            UpstreamFailed: It has what cannot be written again.
        """
        means = self._answering.means
        if means is None:
            self._pass(completion, self._screen)
            return
        clock = means.monotonic_s
        end_s, is_over = clock() + DEADLINE_S, False

        def check() -> None:
            if is_over or clock() > end_s:
                raise AnswerLate

        self._screen = screen = self._new_screen(check, whole=True)  # of another attempt there may be one already
        if size <= INLINE_BYTES:
            self._pass(completion, screen)
            return

        def run() -> None:
            nonlocal end_s
            end_s = clock() + DEADLINE_S  # of its own time, not of its wait
            self._pass(completion, screen)

        try:
            await means.turns.run(self._exchange.key.tenant, run, WAIT_S, None)
        except TimeoutError:  # no thread was to be had: looked at now, with no time left
            is_over = True
            self._pass(completion, screen)
        finally:
            is_over = True  # a thread that nobody waits for ends at its next look

    def _pass(self, completion: Completion, screen: Screen) -> None:
        if self._looks:
            completion.pass_through(screen)
        if self._tools is not None:
            self._denied = denied_call(completion.calls(), self._exchange.key.rules.tools)

    def failure(self) -> Failure | None:
        """Why a whole answer may not be given; None where it may."""
        if not self._screen.stopped:
            return self._denied
        return GUARDS_CUT if self._screen.broken else CONTENT_CUT

    def tell(self) -> None:
        """Put what was seen by now into the books of the exchange."""
        exchange, screen = self._exchange, self._screen
        verdict = screen.verdict()
        if verdict.status != "off":
            exchange.verdicts[RESPONSE_CONTENT] = verdict
        denied = self._denied or (self._tools.failure if self._tools is not None else None)
        if denied is not None:
            exchange.verdicts["policy"] = Verdict("block", place=denied.param or "")
        for guard, reason in screen.failures:
            self._answering.failed(exchange.request_id, guard, "late" if reason == AnswerLate.__name__ else reason)

    def _new_screen(self, check: Callable[[], None] = never_late, *, whole: bool) -> Screen:
        exchange = self._exchange
        taken: dict[str, int] = {}
        for verdict in exchange.verdicts.values():
            if verdict.status == "redact":
                for kind, count in verdict.findings.items():
                    taken[kind] = taken.get(kind, 0) + count  # there are no more placeholders than that
        terms = exchange.key.rules.answers
        return Screen(self._eyes, terms, exchange.originals, taken=taken, check=check, whole=whole)
