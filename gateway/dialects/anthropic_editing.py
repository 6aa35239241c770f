"""Texts of an answer in Anthropic's dialect, whole or in events, on their way through guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.editing import Key, TextEditor
from gateway.dialects.hearing import WORDS
from gateway.dialects.unlisted import Take, WholeTake, edit_json, edit_member, edit_others, edit_value, is_named
from gateway.guards.screen import Screen
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_START, _DELTA, _STOP = b"content_block_start", b"content_block_delta", b"content_block_stop"
_MESSAGE, _LAST_DELTA, _PING = b"message_start", b"message_delta", b"ping"
_ENDS = (_LAST_DELTA, b"message_stop")
_TEXTS = ("text", "thinking")
_TYPES = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}
_PLACES = WORDS | {"citations", "citation", "partial_json"}
KNOWN = frozenset(("id", "type", "role", "model", "content", "stop_reason", "usage", "_anoman"))
"""Members of a message that are no texts, or are read elsewhere."""
_EVENT = frozenset(("type", "index", "delta", "content_block", "message", "usage", "_anoman"))
_UNKNOWN = frozenset(("type", "_anoman"))  # of an event that this version does not know


def edit_block(block: dict[str, Any], take: Take) -> None:
    """Put into *block*, a whole one, what *take* gives for each of its texts."""
    for name, value in block.items():
        if name in _TEXTS and isinstance(value, str):
            block[name] = take(name, value) if value else value
        elif name == "input":
            block[name] = edit_json(value, name, take) if value else value
        elif value and name != "name":  # a tool's, which is for rules to judge
            block[name] = edit_member(block, name, name if name in _PLACES else "other", take)


def edit_blocks(content: Any, take_for: Callable[[str], Take]) -> Any:
    """What leaves of *content*, the blocks of a message, by a take for each place."""
    if not isinstance(content, list):
        return edit_value(content, "content", take_for(""))
    for at, block in enumerate(content):
        if isinstance(block, dict):
            edit_block(block, take_for(f"content[{at}]"))
        else:
            content[at] = edit_value(block, f"content[{at}]", take_for(""))
    return content


def screen_content(content: list[Any], screen: Screen) -> bool:
    """Pass the blocks of *content* through *screen*; whether one of them is another now."""
    takes: list[WholeTake] = []

    def take_for(place: str) -> Take:
        takes.append(WholeTake(screen, place))
        return takes[-1]

    edit_blocks(content, take_for)
    return any(take.changed for take in takes)


class AnthropicTextEditor(TextEditor):
    """Events. A text is a block's, and what is left of it leaves in front of the block's end."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._kinds: dict[str, str] = {}  # of deltas by which a text is said that this version does not know

    def _take(self, name: bytes, data: bytes) -> bytes | None:
        if name == b"error":
            return self._give_up() + frame(data, name)
        if self.failure is not None:
            return b""
        if name == _DELTA:
            return self._take_delta(data)
        if name == _START:
            return self._take_start(data)
        if name == _STOP:
            members = decode_members(data)
            rest, own = self._close(decode_values(members["index"])), self._event_with(members, _EVENT, name)
            return rest + (own or frame(data, name)) if rest or own else None
        if name in _ENDS:
            rest, own = self.end(), self._take_end(data) if name == _LAST_DELTA else None
            return rest + (own or frame(data, name)) if rest or own else None
        if name == _MESSAGE:
            return self._take_message(data)
        return None if name == _PING else self._event_with(decode_members(data), _UNKNOWN, name)

    def _take_message(self, data: bytes) -> bytes | None:
        """The beginning: no texts are known to be in it."""
        members = decode_members(data)
        message = decode_members(members["message"])
        others = edit_others(message, KNOWN, self._take_whole(""))
        if "content" in message:
            others["content"] = edit_blocks(decode_values(message["content"]), self._take_whole)
        if not self._whole_changed or not self._edits:
            return None
        changed = Raw(replace_members(message, others))
        return frame(ascii_json(replace_members(members, {"message": changed})), _MESSAGE)

    def _take_end(self, data: bytes) -> bytes | None:
        members = decode_members(data)
        others = edit_others(members, _EVENT, self._take_whole(""))
        if "delta" in members:
            others["delta"] = edit_value(decode_values(members["delta"]), "delta", self._take_whole(""))
        if not self._whole_changed or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, others)), _LAST_DELTA)

    def _take_start(self, data: bytes) -> bytes | None:
        members = decode_members(data)
        index, block = decode_values(members["index"]), decode_values(members["content_block"])
        is_running = block.get("type") in _TEXTS  # more of it may follow
        changed = False

        def take(name: str, text: str, *, json: bool = False, whole: bool = False) -> str:
            nonlocal changed
            place = f"content[{index}].{name}"
            if whole or not is_running:
                return self._pass_whole(text, place, json=json)
            out = self._passage(Key(index, name), place).feed(text)
            changed |= out != text
            return out

        edit_block(block, take)
        others = edit_others(members, _EVENT, self._take_whole("")) if members.keys() - _EVENT else {}
        if not (changed or self._whole_changed) or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, {**others, "content_block": block})), _START)

    def _take_delta(self, data: bytes) -> bytes | None:
        members = decode_members(data)
        index, delta = decode_values(members["index"]), decode_values(members["delta"])
        said = {name: text for name, text in delta.items() if isinstance(text, str) and not is_named(name, text)}
        out = dict(delta)
        for name, text in delta.items():
            if name in said:
                out[name] = self._feed(Key(index, name), text, delta) if text else text
            elif text and not isinstance(text, str):
                place = f"content[{index}].{name}" if name in _PLACES else f"content[{index}]"
                out[name] = edit_value(text, place, self._take_whole(""))
        others = edit_others(members, _EVENT, self._take_whole("")) if members.keys() - _EVENT else {}
        if len(said) == 1 and len(delta) == 2:
            ((name, text),) = said.items()
            if text and name in _TYPES:
                self._remember(frame(data, _DELTA), b'"%b":' % name.encode(), text, self._passages[Key(index, name)])
                if not out[name] and not others and self._edits:
                    return b""
        if not self._edits or (out == delta and not others):
            return None
        return frame(ascii_json(replace_members(members, {**others, "delta": out})), _DELTA)

    def _feed(self, key: Key, text: str, delta: dict[str, Any]) -> str:
        """What may leave of the piece *text* of a block, whatever the members are in which the block is said."""
        if key.name not in _TYPES:
            self._kinds[key.name] = str(delta.get("type"))
        place = f"content[{key.part}].{key.name}" if key.name in _PLACES else f"content[{key.part}]"
        return self._passage(key, place, json=key.name == "partial_json").feed(text)

    def _say(self, key: Key, text: str) -> bytes:
        delta = {"type": _TYPES.get(key.name) or self._kinds[key.name], key.name: text}
        said = {"type": _DELTA.decode(), "index": key.part, "delta": delta}
        return frame(ascii_json(msgspec.json.encode(said)), _DELTA)
