"""Messages of an OpenAI call, of every role, read into turns and instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from gateway.dialects.neutral import Aside, Document, Image, Message, Notes, Text, ToolCall, ToolResult
from gateway.dialects.openai_prompt_arguments import ArgumentReader
from gateway.dialects.openai_prompt_parts import (
    DRAWN,
    SHOWN,
    SPOKEN,
    TEXTS,
    mark_last,
    read_cache,
    read_content,
)
from gateway.dialects.openai_prompt_raw import note_others
from gateway.dialects.openai_prompt_thoughts import read_thoughts
from gateway.dialects.parts import Placed
from gateway.dialects.validate import name_of, refuse, text_of

_TOLD = frozenset({"role", "content", "cache_control"})
_ASKED = frozenset({*_TOLD, "name"})
_SAID = frozenset(
    {*_ASKED, "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning", "reasoning_details", "images"}
)
_GAVE = frozenset({*_ASKED, "tool_call_id"})  # the name repeats the call's


def read_turns(messages: list[dict[str, Any]], notes: Notes) -> dict[str, Any]:
    """
    The turns among *messages* and the instructions, as members of a `Prompt`.

    Raises:
        GatewayError: An unknown role, or content that is not as documented.
    """
    turns = _Turns(notes)
    for at, message in enumerate(messages):
        turns.read(message, f"messages[{at}]")
    return {"messages": tuple(turns.messages), "system": tuple(turns.system), "moved": tuple(turns.moved)}


class _Turns:
    """What has been read of a conversation."""

    def __init__(self, notes: Notes) -> None:
        self.system: list[Text] = []
        self.moved: list[Aside] = []
        self.messages: list[Message] = []
        self._notes = notes
        self._arguments = ArgumentReader()
        self._function_ids: dict[str, str] = {}  # of the deprecated form, which has none: the last of each name

    def read(self, message: dict[str, Any], place: str) -> None:
        read = _ROLES.get(message["role"])
        if read is None:
            raise refuse(f"{place}.role", f"{place}.role must be one of {', '.join(_ROLES)}.")
        read(self, message, place)

    def instruct(self, message: dict[str, Any], place: str) -> None:
        """An instruction, and where it stands if that is behind the first turn."""
        note_others(message, _TOLD, place, self._notes)
        parts = read_content(message.get("content"), f"{place}.content", TEXTS, self._notes)
        mark_last(parts, read_cache(message, place, self._notes), place, self._notes)
        for where, part, _ in parts:
            if isinstance(part, Text) and part.text.strip():
                self.system.append(part)
                if self.messages:
                    self.moved.append(Aside(len(self.messages), place))
            else:
                self._notes.drop(where)

    def ask(self, message: dict[str, Any], place: str) -> None:
        """A user's turn."""
        note_others(message, _ASKED, place, self._notes)
        if message.get("content") is None:
            raise refuse(f"{place}.content", f"{place}.content: This field is required.")
        parts = read_content(message["content"], f"{place}.content", SHOWN, self._notes)
        mark_last(parts, read_cache(message, place, self._notes), place, self._notes)
        self._add("user", message, place, parts)

    def say(self, message: dict[str, Any], place: str) -> None:
        """The assistant's turn: what it thought, said and called."""
        note_others(message, _SAID, place, self._notes)
        parts = read_thoughts(message, place, self._notes)
        parts += read_content(message.get("content"), f"{place}.content", SPOKEN, self._notes)
        refusal = text_of(message.get("refusal") or "", f"{place}.refusal")
        if refusal:
            parts.append(Placed(f"{place}.refusal", Text(refusal)))
        parts += read_content(_bare(message.get("images")), f"{place}.images", DRAWN, self._notes)
        parts += self._calls(message.get("tool_calls") or [], f"{place}.tool_calls")
        if message.get("function_call") is not None:
            parts.append(self._function_call(message["function_call"], f"{place}.function_call"))
        mark_last(parts, read_cache(message, place, self._notes), place, self._notes)
        self._add("assistant", message, place, parts)

    def give(self, message: dict[str, Any], place: str) -> None:
        """What a tool gave back."""
        note_others(message, _GAVE, place, self._notes)
        self._give(name_of(message.get("tool_call_id"), f"{place}.tool_call_id"), message, place)

    def give_by_name(self, message: dict[str, Any], place: str) -> None:
        """The deprecated form of it."""
        note_others(message, _ASKED, place, self._notes)
        call_id = self._function_ids.pop(name_of(message.get("name"), f"{place}.name"), None)
        if call_id is None:
            raise refuse(f"{place}.name", f"{place}.name: no function of this name was called before.")
        self._give(call_id, message, place)

    def _give(self, call_id: str, message: dict[str, Any], place: str) -> None:
        parts = read_content(message.get("content"), f"{place}.content", SHOWN, self._notes)
        kept = tuple(part for _, part, _ in parts if isinstance(part, Text | Image | Document))
        result = ToolResult(call_id, kept, cache=read_cache(message, place, self._notes))
        self.messages.append(Message("user", (result,), place))

    def _calls(self, calls: Any, place: str) -> list[Placed]:
        if not isinstance(calls, list):
            raise refuse(place, f"{place} must be a list.")
        return [self._call(call, f"{place}[{at}]") for at, call in enumerate(calls)]

    def _call(self, call: Any, place: str) -> Placed:
        if not isinstance(call, dict) or call.get("type") not in (None, "function"):
            raise refuse(place, f"{place}: only calls of functions can be passed on.")
        note_others(call, frozenset({"id", "type", "function", "index"}), place, self._notes)
        call_id = name_of(call.get("id"), f"{place}.id")
        return Placed(place, self._function(call.get("function"), call_id, f"{place}.function"))

    def _function_call(self, function: Any, place: str) -> Placed:
        call_id = f"function_{len(self.messages)}"
        call = self._function(function, call_id, place)
        self._function_ids[call.name] = call_id
        return Placed(place, call)

    def _function(self, function: Any, call_id: str, place: str) -> ToolCall:
        if not isinstance(function, dict):
            raise refuse(place, f"{place} must be an object.")
        name = name_of(function.get("name"), f"{place}.name")
        note_others(function, frozenset({"name", "arguments"}), place, self._notes)
        return ToolCall(call_id, name, self._arguments.read(function.get("arguments"), f"{place}.arguments"))

    def _add(
        self, role: Literal["user", "assistant"], message: dict[str, Any], place: str, parts: list[Placed]
    ) -> None:
        name = text_of(message.get("name") or "", f"{place}.name") or None
        kept, places = tuple(part for _, part, _ in parts), tuple(where for where, _, _ in parts)
        self.messages.append(Message(role, kept, place, name, places))


def _bare(images: Any) -> Any:
    """Pictures of an answer as parts: without the index that puts the pieces of a stream together."""
    if not isinstance(images, list):
        return images
    return [{k: v for k, v in each.items() if k != "index"} if isinstance(each, dict) else each for each in images]


_ROLES: dict[str, Callable[[_Turns, dict[str, Any], str], None]] = {
    "system": _Turns.instruct,
    "developer": _Turns.instruct,
    "user": _Turns.ask,
    "assistant": _Turns.say,
    "tool": _Turns.give,
    "function": _Turns.give_by_name,
}
