"""The tool calls of one OpenAI answer, put together from fragments that vendors mark in many ways."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

from gateway.core.errors import UpstreamFailed
from gateway.dialects.failures import malformed
from gateway.dialects.neutral import AnswerEvent, Argued, Called
from gateway.dialects.openai_stream import MAX_TOOL_CALLS
from gateway.dialects.tool_arguments import ArgumentText

MAX_NAMELESS_CHARS = 64 * 1024  # of arguments kept until the call's name is here; no vendor is known to send them first
_NO_ID_CHAR = re.compile(r"[^a-zA-Z0-9_-]+")  # what Anthropic takes in the ids of calls
_NONE = frozenset(("null", "[]", '""'))  # what some send where there are no arguments
_MAX_ID_CHARS = 40  # of the answer's id in one that we make: with prefix and slot within the 64 that are usual

_string = msgspec.json.Decoder(str).decode


class _Fragment(Struct, gc=False):
    index: int | None
    id: str | None
    name: str | None
    arguments: str


class _Call:
    """One call; without a slot until its name is known."""

    __slots__ = ("id", "is_over", "name", "slot", "text", "waiting")

    def __init__(self) -> None:
        self.id: str | None = None  # the provider's
        self.name: str | None = None
        self.slot: int | None = None
        self.text: ArgumentText | None = None  # once the first brace is here
        self.is_over = False  # its arguments are whole, so that the same name again means another call
        self.waiting = ""


class CallReader:
    """
    Fragments in, `Called` and `Argued` out; slots are dense from 0.

    A fragment belongs to the call with its index, else to the one with its id, else to the last. It opens another one
    where it has an id or a name that the call it would belong to does not have: some vendors send no index, others 0
    for all.
    """

    def __init__(self) -> None:
        self.opened = 0
        self.note: str | None = None
        self.going_on: int | None = None  # the index, where the last delta was a bare piece of one call's arguments
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._ids: set[str] = set()  # as told

    def take(self, said: dict[str, Any], answer_id: str) -> list[AnswerEvent]:
        """
        What the `tool_calls`, or the older `function_call`, of a delta or message say.

        Raises:
            UpstreamFailed: Arguments that are no object, or more calls than a request can have tools.
            OverflowError, RecursionError: Arguments sent as JSON that cannot be written again.
        """
        calls = said.get("tool_calls")
        fragments = [_read(item) for item in calls if isinstance(item, dict)] if isinstance(calls, list) else []
        if isinstance(said.get("function_call"), dict):
            fragments.append(_read({"function": said["function_call"]}))
        is_bare = len(fragments) == 1 and not fragments[0].id and not fragments[0].name
        self.going_on = fragments[0].index if is_bare else None
        out: list[AnswerEvent] = []
        for fragment in fragments:
            out += self._take(fragment, answer_id)
        return out

    def go_on(self, index: int, text: str) -> list[AnswerEvent]:
        """What a bare piece of arguments with *index* says. Raises UpstreamFailed as `take`."""
        return self._take(_Fragment(index, None, None, text), "")

    def has_nameless(self) -> bool:
        """Whether a call was begun that never got a name."""
        return self.opened < len(self._calls)

    def _take(self, fragment: _Fragment, answer_id: str) -> list[AnswerEvent]:
        call = self._find(fragment)
        if call is None:
            self.note = self.note or "stray_arguments"
            return []
        if fragment.id and call.id is None:
            call.id = fragment.id
            self._by_id.setdefault(fragment.id, call)
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        call.name = call.name or fragment.name
        text = self._more(call, fragment.arguments)
        if call.name is None:
            call.waiting += text
            if len(call.waiting) > MAX_NAMELESS_CHARS:
                raise UpstreamFailed(malformed("arguments of a tool call without a name"))
            return []
        out: list[AnswerEvent] = []
        if call.slot is None:
            call.slot, self.opened = self.opened, self.opened + 1
            text, call.waiting = call.waiting + text, ""
            out.append(Called(call.slot, self._id_for(call, call.slot, answer_id), call.name))
        if text:
            out.append(Argued(call.slot, text))
        return out

    def _find(self, fragment: _Fragment) -> _Call | None:
        """The call that *fragment* belongs to, a new one where it opens one, None for words without a call."""
        last = self._calls[-1] if self._calls else None
        if fragment.index is not None:
            there = self._by_index.get(fragment.index)
            if there is None:
                return self._open() if fragment.id or fragment.name else last
        else:
            there = self._by_id.get(fragment.id, last) if fragment.id else last
        if there is None:
            return self._open() if fragment.id or fragment.name else None
        if fragment.id:
            if there.id == fragment.id or (there.id is None and fragment.index is not None):
                return there
            return self._by_id.get(fragment.id) or self._open()
        return self._open() if _is_another(there, fragment) else there

    def _open(self) -> _Call:
        if len(self._calls) >= MAX_TOOL_CALLS:
            raise UpstreamFailed(malformed("too many tool calls"))
        call = _Call()
        self._calls.append(call)
        return call

    def _more(self, call: _Call, text: str) -> str:
        """What *text* adds to the arguments of *call*; a bare `{}` adds nothing, as members may follow it."""
        if call.text is None:
            if not text or text.isspace():
                return ""
            text = _object_text(text)
            if not text:
                call.is_over = True
                return ""
            call.text = ArgumentText()
        elif call.text.whole:
            if text.strip():
                self.note = self.note or "stray_arguments"
            return ""
        call.text.add(text)
        call.is_over = call.text.whole
        return text

    def _id_for(self, call: _Call, slot: int, answer_id: str) -> str:
        """The provider's id; one of ours where it has none, or gives the same to two calls; "" where nothing tells."""
        told = call.id
        if told is None or told in self._ids:
            answer = _NO_ID_CHAR.sub("", answer_id)[-_MAX_ID_CHARS:]
            told = f"call_{answer}_{slot}" if answer else ""
        self._ids.add(told)
        return told


def _is_another(call: _Call, fragment: _Fragment) -> bool:
    """Whether the name in *fragment*, which has no id, begins another call, instead of repeating the name of *call*."""
    if not fragment.name or not call.name:
        return False
    return fragment.name != call.name or (call.is_over and bool(fragment.arguments.strip()))


def _read(said: dict[str, Any]) -> _Fragment:
    index, call_id = said.get("index"), said.get("id")
    if type(index) is int and not 0 <= index < MAX_TOOL_CALLS:
        raise UpstreamFailed(malformed("the index of a tool call"))
    function = said.get("function")
    members = function if isinstance(function, dict) else {}
    name, arguments = members.get("name"), members.get("arguments")
    if arguments is not None and not isinstance(arguments, str):  # an object instead of its text
        arguments = msgspec.json.encode(arguments).decode()
    return _Fragment(
        index=index if type(index) is int else None,
        id=call_id if isinstance(call_id, str) and call_id else None,
        name=name if isinstance(name, str) and name else None,
        arguments=arguments or "",
    )


def _object_text(text: str) -> str:
    """
    The first text of a call's arguments from the object's brace on, "" for an empty object.

    Raises:
        UpstreamFailed: It is the beginning of something else, which no client could take for arguments.
    """
    text = text.lstrip()
    if text.rstrip() in _NONE:
        return ""
    if text[:1] == '"':  # encoded twice
        try:
            text = _string(text).lstrip()
        except msgspec.DecodeError:
            pass
    if text[:1] != "{":
        raise UpstreamFailed(malformed("tool arguments that are no object"))
    return "" if text[1:].strip() == "}" else text
