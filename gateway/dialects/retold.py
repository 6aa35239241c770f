"""What was changed in a call for its provider, changed back in the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from gateway.dialects.neutral import AnswerEvent, Argued, Called, Finished, Other, Refused, Said
from gateway.wire.values import decode_values

_TOOL_EVENTS = frozenset((Called, Argued, Finished, Other))
_MAX_HELD_CHARS = 65_536  # of text where JSON is wanted: a refusal has some hundred, so more is the answer
_EMPTY = "{}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(decode_values(text.encode("utf-8", "replace")), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


class Retold:
    """
    The events of one answer as the client's own call would have had them.

    Args:
        request_id: What ids of calls are made of where the provider gives none: unique, so that those of several turns
            never are the same.
        tools: See `Params`. A tool that has no name there is no tool to the client: its arguments are the answer.

    Attributes:
        touches: Types of events that `tell` has to see; others are told as they are.
        note: Something that was left out, for the log.
    """

    def __init__(self, request_id: str, tools: Mapping[str, str | None]) -> None:
        self.note: str | None = None
        self._request_id = request_id.removeprefix("req_")
        self._tools = tools
        self._slots: dict[int, int] = {}  # the provider's, and the client's
        self._answer: int | None = None  # the slot whose arguments are the answer
        self._is_silent = True  # none of them has come
        self._beside: list[str] = []  # texts, held back while a tool may still take the answer
        self._room = _MAX_HELD_CHARS
        self._others: dict[int, Retold] = {}  # answers, by their index
        self.touches = _TOOL_EVENTS | {Said} if None in tools.values() else _TOOL_EVENTS

    @property
    def is_holding(self) -> bool:
        """Whether something was said that the client is yet to hear."""
        return bool(self._beside)

    def tell(self, event: AnswerEvent) -> Sequence[AnswerEvent]:
        """What the client is to hear for *event*."""
        if isinstance(event, Called):
            return self._call(event)
        if isinstance(event, Argued):
            return self._argue(event)
        if isinstance(event, Finished):
            return self._finish(event)
        if isinstance(event, Other):
            return self._tell_other(event)
        if isinstance(event, Said):
            return self._hold(event)
        return (event,)

    def _hold(self, event: Said) -> Sequence[AnswerEvent]:
        """Keep *event* back while it is not known what it is: a refusal, or an answer that no tool was called with."""
        if self._answer is not None:
            self._leave_out()
            return ()
        if self._room < 0:
            return (event,)
        self._beside.append(event.text)
        self._room -= len(event.text)
        return (self._let_go(),) if self._room < 0 else ()

    def _leave_out(self) -> None:
        """What is held back, or comes now, is not told: the answer is JSON, and with more it would be none."""
        self._beside.clear()
        self._remark("text_beside_json")

    def _let_go(self) -> Said:
        text, self._beside = "".join(self._beside), []
        return Said(text)

    def _call(self, event: Called) -> Sequence[AnswerEvent]:
        name = self._tools.get(event.name, event.name)
        if name is None:
            if self._answer is None:
                self._answer = event.slot
                if self._beside:
                    self._leave_out()
            else:
                self._remark("second_answer")
            return ()
        slot = self._slots[event.slot] = len(self._slots)
        return (structs.replace(event, slot=slot, name=name, id=event.id or f"call_{self._request_id}_{slot}"),)

    def _argue(self, event: Argued) -> Sequence[AnswerEvent]:
        if event.slot == self._answer:
            self._is_silent = False
            return (Said(event.text),)
        slot = self._slots.get(event.slot)
        return (event if slot == event.slot else Argued(slot, event.text),) if slot is not None else ()

    def _finish(self, event: Finished) -> Sequence[AnswerEvent]:
        if self._beside and self._slots:
            self._leave_out()
        if self._beside:
            # A model that will not answer in the form says so in words, to its end. One that does, but calls nothing,
            # has answered; and what was cut short has not come to a refusal.
            held = self._let_go()
            has_refused = event.reason == "stop" and not _is_object(held.text)
            return (Refused(held.text) if has_refused else held, event)
        if self._answer is None or event.reason != "tool_calls":
            return (event,)
        said = (Said(_EMPTY),) if self._is_silent else ()
        return (*said, event if self._slots else Finished("stop", said=event.said))

    def _tell_other(self, event: Other) -> Sequence[AnswerEvent]:
        other = self._others.get(event.index)
        if other is None:
            other = self._others[event.index] = Retold(f"{self._request_id}_{event.index}", self._tools)
        if type(event.event) not in other.touches:
            return (event,)
        told = other.tell(event.event)
        self.note = self.note or other.note
        return [Other(event.index, each) for each in told]

    def _remark(self, note: str) -> None:
        self.note = self.note or note
