"""Texts of an answer in OpenAI's dialect, whole or in chunks, on their way through guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.editing import Key, TextEditor, passes
from gateway.dialects.hearing import WORDS
from gateway.dialects.openai_stream import CHUNK, METADATA
from gateway.dialects.unlisted import Take, WholeTake, edit_json, edit_member, edit_others, edit_value
from gateway.guards.screen import Screen
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
_DETAILS = ("text", "summary")  # of OpenRouter's `reasoning_details`
_PARTS = ("text", "thinking", "refusal", "summary")  # of a text that comes in parts
_CALLED = ("function", "custom")
_ENVELOPE = ("id", "created", "model")
_ARGUMENTS = "arguments"
_CALLS = "tool_calls"
_CHOICE = frozenset(("index", "delta", "finish_reason", "logprobs"))
KNOWN = frozenset(
    (*_ENVELOPE, "object", "choices", "usage", "service_tier", "system_fingerprint", "obfuscation", "_anoman")
)
"""Members of a chunk or a completion that are no texts, or are read elsewhere."""
_NULL = Raw(b"null")


def edit_message(said: dict[str, Any], take: Take) -> None:
    """Put into *said*, a message or a delta, what *take* gives for each of its texts."""
    for name, value in said.items():
        if value:
            said[name] = _edited(said, name, value, take)


def _edited(said: dict[str, Any], name: str, value: Any, take: Take) -> Any:
    """What leaves of the member *name* of a message."""
    if name in _TEXTS:
        return _edit_parts(value, name, take)
    if name == _CALLS:
        return _edit_each(value, name, _edit_call, take)
    if name == "reasoning_details":
        return _edit_each(value, name, _edit_detail, take)
    if name == "function_call" and isinstance(value, dict):
        return _edit_function(value, name, take)
    if name == "audio" and isinstance(value, dict):
        return {one: _edit_audio(value, one, take) for one in value}
    return edit_member(said, name, name if name in WORDS else "other", take)


def _edit_parts(value: Any, place: str, take: Take) -> Any:
    """A text, or its parts, or one of them, or what that consists of: pieces all the same."""
    if isinstance(value, str):
        return take(place, value) if value else value
    if isinstance(value, list):
        return [_edit_parts(one, place, take) for one in value]
    if not isinstance(value, dict):
        return value
    out = dict(value)
    for name in value:
        if name in _PARTS:
            out[name] = _edit_parts(value[name], place if name == "text" else name, take)
        else:
            out[name] = edit_member(value, name, place, take)
    return out


def _edit_each(value: Any, place: str, edit: Callable[[dict[str, Any], str, Take], Any], take: Take) -> Any:
    """What *edit* gives for each of a list, or for the one that stands in its place."""
    if isinstance(value, dict):
        return edit(value, f"{place}[{_index(value, 0)}]", take)
    if not isinstance(value, list):
        return edit_value(value, place, take)
    return [
        edit(one, f"{place}[{_index(one, at)}]", take) if isinstance(one, dict) else edit_value(one, place, take)
        for at, one in enumerate(value)
    ]


def _edit_detail(detail: dict[str, Any], place: str, take: Take) -> dict[str, Any]:
    return {
        name: take(f"{place}.{name}", value)
        if name in _DETAILS and isinstance(value, str) and value
        else edit_member(detail, name, place, take)
        for name, value in detail.items()
    }


def _edit_audio(audio: dict[str, Any], name: str, take: Take) -> Any:
    value = audio[name]
    if name == "transcript" and isinstance(value, str) and value:
        return take(f"audio.{name}", value)
    return value if name == "data" else edit_member(audio, name, "audio", take)


def _edit_call(call: dict[str, Any], place: str, take: Take) -> dict[str, Any]:
    return {
        name: _edit_function(value, place, take)
        if name in _CALLED and isinstance(value, dict)
        else edit_member(call, name, place, take)
        for name, value in call.items()
    }


def _edit_function(function: dict[str, Any], place: str, take: Take) -> dict[str, Any]:
    """What is called, with its arguments; its name is for rules to judge."""
    out = dict(function)
    for name, value in function.items():
        if name in (_ARGUMENTS, "input"):
            is_json, here = name == _ARGUMENTS, f"{place}.{name}"
            if isinstance(value, str):
                out[name] = take(here, value, json=is_json) if value else value
            else:
                out[name] = edit_json(value, here, take) if value else value
        elif name != "name" or not isinstance(value, str):
            out[name] = edit_member(function, name, place, take)
    return out


def _index(said: dict[str, Any], at: int) -> int:
    index = said.get("index")
    return index if type(index) is int else at


def _dicts(said: object) -> list[dict[str, Any]]:
    return [one for one in said if isinstance(one, dict)] if isinstance(said, list) else []


def screen_choices(choices: list[Any], screen: Screen) -> bool:
    """Pass the messages of *choices* through *screen*; whether one of them is another now."""
    changed = False
    for at, choice in enumerate(_dicts(choices)):
        place = f"choices[{_index(choice, at)}]"
        message, other = WholeTake(screen, f"{place}.message"), WholeTake(screen, place)
        _edit_rest(choice, other)
        if isinstance(choice.get("message"), dict):
            edit_message(choice["message"], message)
        changed |= message.changed or other.changed
        if screen.holds and choice.get("logprobs"):
            choice["logprobs"], changed = None, True
    return changed


def _edit_rest(choice: dict[str, Any], take: Take) -> None:
    """The texts of *choice* besides its delta's and its message's."""
    for name, value in choice.items():
        if value and name not in _CHOICE and not (name == "message" and isinstance(value, dict)):
            choice[name] = edit_member(choice, name, name if name == "text" else "other", take)


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
        if decode_values(members.get("object", _NULL)) == METADATA:
            return None
        if "choices" not in members:
            return self._event_with(members, KNOWN)
        self._envelope = {one: members[one] for one in _ENVELOPE if one in members}
        choices = decode_values(members["choices"])
        only, before, changed = _only_text(choices), list[bytes](), False
        for choice in _dicts(choices):
            changed |= self._edit_choice(choice, before)
        others = edit_others(members, KNOWN, self._take_whole("")) if members.keys() - KNOWN else {}
        changed |= self._whole_changed
        if only is not None:
            key, text = only
            self._remember(frame(data), b'"%b":' % key.name.encode(), text, self._passages[key])
        if not self._edits:
            return None
        if not changed:
            return b"".join([*before, frame(data)]) if before else None
        if others or _says(choices) or bytes(members.get("usage", _NULL)) != bytes(_NULL):
            before.append(frame(ascii_json(replace_members(members, {**others, "choices": choices}))))
        return b"".join(before)

    def _edit_choice(self, choice: dict[str, Any], before: list[bytes]) -> bool:
        """Edit the delta of *choice*, with what leaves *before* it; whether it is another now."""
        index, changed = _index(choice, 0), False

        def take(name: str, text: str, *, json: bool = False, whole: bool = False) -> str:
            nonlocal changed
            place = f"choices[{index}].message.{name}"
            if whole:
                return self._pass_whole(text, place, json=json)
            self._turn(index, name, before)
            out = self._passage(Key(index, name), place, json=json).feed(text)
            changed |= out != text
            return out

        delta = choice.get("delta")
        if isinstance(delta, dict):
            if delta.get("tool_calls"):
                self._turn(index, _CALLS, before)
            edit_message(delta, take)
        if choice.keys() - _CHOICE:
            self._edit_message_within(choice, index)
        if self._holds and choice.get("logprobs"):
            choice["logprobs"], changed = None, True
        if choice.get("finish_reason"):
            rest = self._close(index)
            if rest and isinstance(delta, dict) and passes(delta):
                before.append(self._chunk(index, delta))
                choice["delta"], changed = {}, True
            before.append(rest)
        return changed

    def _edit_message_within(self, choice: dict[str, Any], index: int) -> None:
        _edit_rest(choice, self._take_whole(f"choices[{index}]"))
        if isinstance(choice.get("message"), dict):
            edit_message(choice["message"], self._take_whole(f"choices[{index}].message"))

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
        if any(value for name, value in choice.items() if name not in ("index", "delta")):
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
