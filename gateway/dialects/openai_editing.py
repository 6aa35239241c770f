"""Texts of an answer in OpenAI's dialect, whole or in chunks, on their way through guards."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.editing import Key, Take, TextEditor, passes
from gateway.dialects.openai_stream import CHUNK, METADATA
from gateway.guards.screen import Screen
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_DETAILS = ("text", "summary")  # of OpenRouter's `reasoning_details`
_ENVELOPE = ("id", "created", "model")
_ARGUMENTS = "arguments"
_CALLS = "tool_calls"
_NULL = Raw(b"null")


def edit_message(said: dict[str, Any], take: Take) -> None:
    """Put into *said*, a message or a delta, what *take* gives for each of its texts."""
    for name in _TEXTS:
        value = said.get(name)
        if isinstance(value, str) and value:
            said[name] = take(name, value)
        elif isinstance(value, list):  # Mistral's parts
            _edit_parts(value, name, take)
    for at, detail in enumerate(_dicts(said.get("reasoning_details"))):
        for name in _DETAILS:
            _edit(detail, name, f"reasoning_details[{_index(detail, at)}].{name}", take)
    audio = said.get("audio")
    if isinstance(audio, dict):
        _edit(audio, "transcript", "audio.transcript", take)
    for at, call in enumerate(_dicts(said.get("tool_calls"))):
        _edit_call(call, f"tool_calls[{_index(call, at)}]", take)
    function = said.get("function_call")
    if isinstance(function, dict):
        _edit(function, _ARGUMENTS, f"function_call.{_ARGUMENTS}", take, json=True)


def _edit_call(call: dict[str, Any], place: str, take: Take) -> None:
    function, custom = call.get("function"), call.get("custom")
    if isinstance(function, dict):
        _edit(function, _ARGUMENTS, f"{place}.{_ARGUMENTS}", take, json=True)
    if isinstance(custom, dict):
        _edit(custom, "input", f"{place}.input", take)


def _edit_parts(parts: list[Any], place: str, take: Take) -> None:
    for part in _dicts(parts):
        _edit(part, "text", place, take)
        if isinstance(part.get("thinking"), list):
            _edit_parts(part["thinking"], "thinking", take)


def _edit(said: dict[str, Any], name: str, place: str, take: Take, *, json: bool = False) -> None:
    value = said.get(name)
    if isinstance(value, str) and value:
        said[name] = take(place, value, json=json)


def _index(said: dict[str, Any], at: int) -> int:
    index = said.get("index")
    return index if type(index) is int else at


def _dicts(said: object) -> list[dict[str, Any]]:
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []


def screen_choices(choices: list[Any], screen: Screen) -> bool:
    """Pass the messages of *choices* through *screen*; whether one of them is another now."""
    changed = False
    for at, choice in enumerate(_dicts(choices)):
        index = _index(choice, at)

        def take(name: str, text: str, *, json: bool = False, index: int = index) -> str:
            nonlocal changed
            out = screen.pass_whole(text, f"choices[{index}].message.{name}", json=json)
            changed |= out != text
            return out

        if isinstance(choice.get("message"), dict):
            edit_message(choice["message"], take)
            if screen.holds and choice.get("logprobs"):
                choice["logprobs"], changed = None, True
    return changed


class OpenAITextEditor(TextEditor):
    """
    Chunks. Texts of a choice come one after the other, and each ends where another begins; arguments of tools, which
    may come in turns, end with their choice. What is left of a text leaves in a chunk of our own.
    """

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._envelope: dict[str, object] = {}
        self._speaking: dict[int, str] = {}  # which text of a choice came last

    def _take(self, name: bytes, data: bytes) -> bytes | None:
        if not data.startswith(b"{"):  # the terminator
            return self.end() + frame(data)
        members = decode_members(data)
        if "error" in members:
            return self._give_up() + frame(data)
        if self.failure is not None:
            return b""
        if "choices" not in members or decode_values(members.get("object", _NULL)) == METADATA:
            return None
        self._envelope = {one: members[one] for one in _ENVELOPE if one in members}
        choices = decode_values(members["choices"])
        only, before, changed = _only_text(choices), list[bytes](), False
        for choice in _dicts(choices):
            changed |= self._edit_choice(choice, before)
        if only is not None:
            key, text = only
            self._remember(frame(data), b'"%b":' % key.name.encode(), text, self._passages[key])
        if not self._edits:
            return None
        if not changed:
            return b"".join([*before, frame(data)]) if before else None
        if _says(choices) or bytes(members.get("usage", _NULL)) != bytes(_NULL):
            before.append(frame(ascii_json(replace_members(members, {"choices": choices}))))
        return b"".join(before)

    def _edit_choice(self, choice: dict[str, Any], before: list[bytes]) -> bool:
        """Edit the delta of *choice*, with what leaves *before* it; whether it is another now."""
        index, told, changed = _index(choice, 0), False, False

        def take(name: str, text: str, *, json: bool = False) -> str:
            nonlocal told, changed
            told = True
            self._turn(index, name, before)
            passage = self._passage(Key(index, name), f"choices[{index}].message.{name}", json=json)
            out = passage.feed(text)
            changed |= out != text
            return out

        delta = choice.get("delta")
        if isinstance(delta, dict):
            if delta.get("tool_calls"):
                self._turn(index, _CALLS, before)
            edit_message(delta, take)
        if told and self._holds and choice.get("logprobs"):
            choice["logprobs"], changed = None, True
        if choice.get("finish_reason"):
            rest = self._close(index)
            if rest and isinstance(delta, dict) and passes(delta):
                before.append(self._chunk(index, delta))
                choice["delta"], changed = {}, True
            before.append(rest)
        return changed

    def _turn(self, index: int, name: str, before: list[bytes]) -> None:
        """The text *name* of a choice has a piece: those that were before it are over, arguments of tools excepted."""
        turn = _turn_of(name)
        if self._speaking.get(index, turn) != turn:
            over = [key for key in self._passages if key.part == index and _turn_of(key.name) not in (turn, _CALLS)]
            before += map(self._flush, over)
        self._speaking[index] = turn

    def _say(self, key: Key, text: str) -> bytes:
        return self._chunk(key.part, _delta(key.name, text))

    def _chunk(self, index: int, delta: dict[str, Any]) -> bytes:
        choices = [{"index": index, "delta": delta, "finish_reason": None}]
        said = {**self._envelope, "object": CHUNK, "choices": choices}
        return frame(ascii_json(msgspec.json.encode(said)))


def _turn_of(name: str) -> str:
    """What a text is part of, of all that comes in turns; some vendors say their thoughts in two forms at once."""
    member = name.partition("[")[0].partition(".")[0]
    return "thoughts" if member.startswith(("reasoning", "thinking")) else member


def _only_text(choices: list[Any]) -> tuple[Key, str] | None:
    """The text of *choices*, and which it is, if that is all that there is."""
    if len(choices) != 1 or choices[0].get("finish_reason") or choices[0].get("logprobs"):
        return None
    said = {name: value for name, value in (choices[0].get("delta") or {}).items() if value}
    name, text = next(iter(said.items()), ("", ""))
    is_one = len(said) == 1 and name in _TEXTS and isinstance(text, str)
    return (Key(_index(choices[0], 0), name), text) if is_one else None


def _delta(name: str, text: str) -> dict[str, Any]:
    """The delta that says *text* at the place *name* of a message."""
    place, _, member = name.rpartition(".")
    if not place:
        return {name: text}
    outer, _, index = place.rstrip("]").partition("[")
    if outer == _CALLS:
        inner = {"input": text} if member == "input" else {_ARGUMENTS: text}
        return {outer: [{"index": int(index), "custom" if member == "input" else "function": inner}]}
    if outer == "reasoning_details":
        kind = "reasoning.summary" if member == "summary" else "reasoning.text"
        return {outer: [{"type": kind, "index": int(index), member: text}]}
    return {outer: {member: text}}


def _says(choices: list[Any]) -> bool:
    """Whether anything is left in *choices* whose texts are held back."""
    for choice in _dicts(choices):
        if choice.get("finish_reason") or choice.get("logprobs"):
            return True
        delta = choice.get("delta")
        if not isinstance(delta, dict) or passes({k: v for k, v in delta.items() if k != "tool_calls"}):
            return True
        if any(_opens(call) for call in _dicts(delta.get("tool_calls"))):
            return True
    return False


def _opens(call: dict[str, Any]) -> bool:
    """Whether a piece of a tool call says more than arguments that are held back."""
    inner = call.get("function") or call.get("custom")
    more = {name: value for name, value in call.items() if name not in ("index", "function", "custom")}
    return passes(more) or (isinstance(inner, dict) and passes(inner))
