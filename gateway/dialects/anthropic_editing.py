"""Texts of an answer in Anthropic's dialect, whole or in events, on their way through guards."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.editing import Key, Take, TextEditor
from gateway.guards.screen import Screen
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_START, _DELTA, _STOP = b"content_block_start", b"content_block_delta", b"content_block_stop"
_ENDS = (b"message_delta", b"message_stop")
_TEXTS = ("text", "thinking")
# Members of what a server's tool found, and of citations, that people or models read.
_FOUND = ("text", "title", "cited_text", "stdout", "stderr", "document_title")
_TYPES = {"text": "text_delta", "thinking": "thinking_delta", "partial_json": "input_json_delta"}


def edit_block(block: dict[str, Any], take: Take) -> None:
    """Put into *block*, a whole one, what *take* gives for each of its texts."""
    for name in _TEXTS:
        if isinstance(block.get(name), str) and block[name]:
            block[name] = take(name, block[name])
    if block.get("input"):
        block["input"] = Raw(take("input", msgspec.json.encode(block["input"]).decode(), json=True).encode() or b"{}")
    for name in ("citations", "content"):
        _edit_found(block.get(name), name, take)


def _edit_found(said: object, place: str, take: Take) -> None:
    """The texts within what a tool of the server found; bodies are bounded in depth, so this is too."""
    if isinstance(said, list):
        for one in said:
            _edit_found(one, place, take)
    elif isinstance(said, dict):
        for name, value in said.items():
            if name in _FOUND and isinstance(value, str) and value:
                said[name] = take(f"{place}.{name}", value)
            else:
                _edit_found(value, place, take)


def screen_content(content: list[Any], screen: Screen) -> bool:
    """Pass the blocks of *content* through *screen*; whether one of them is another now."""
    changed = False
    for at, block in enumerate(content):

        def take(name: str, text: str, *, json: bool = False, at: int = at) -> str:
            nonlocal changed
            out = screen.pass_whole(text, f"content[{at}].{name}", json=json)
            changed |= out != text
            return out

        if isinstance(block, dict):
            edit_block(block, take)
    return changed


class AnthropicTextEditor(TextEditor):
    """Events. A text is a block's, and what is left of it leaves in front of the block's end."""

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
            index = decode_values(decode_members(data)["index"])
            rest = self._close(index)
            return rest + frame(data, name) if rest else None
        if name in _ENDS:
            rest = self.end()
            return rest + frame(data, name) if rest else None
        return None

    def _take_start(self, data: bytes) -> bytes | None:
        members = decode_members(data)
        index, block = decode_values(members["index"]), decode_values(members["content_block"])
        is_running = block.get("type") in _TEXTS  # more of it may follow
        changed = False

        def take(name: str, text: str, *, json: bool = False) -> str:
            nonlocal changed
            place = f"content[{index}].{name}"
            if is_running and name in _TEXTS:
                out = self._passage(Key(index, name), place).feed(text)
            else:
                out = self._screen.pass_whole(text, place, json=json)
            changed |= out != text
            return out

        edit_block(block, take)
        if not changed or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, {"content_block": block})), _START)

    def _take_delta(self, data: bytes) -> bytes | None:
        members = decode_members(data)
        index, delta = decode_values(members["index"]), decode_values(members["delta"])
        for name in _TYPES:
            text = delta.get(name)
            if isinstance(text, str) and text:
                break
        else:
            return self._take_citation(members, delta, index)
        passage = self._passage(Key(index, name), f"content[{index}].{name}", json=name == "partial_json")
        out = passage.feed(text)
        if set(delta) == {"type", name}:
            self._remember(frame(data, _DELTA), b'"%b":' % name.encode(), text, passage)
            if not out and self._edits:
                return b""
        if out == text or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, {"delta": {**delta, name: out}})), _DELTA)

    def _take_citation(self, members: dict[str, Raw], delta: dict[str, Any], index: int) -> bytes | None:
        changed = False

        def take(name: str, text: str, *, json: bool = False) -> str:
            nonlocal changed
            out = self._screen.pass_whole(text, f"content[{index}].{name}", json=json)
            changed |= out != text
            return out

        _edit_found(delta.get("citation"), "citations", take)
        if not changed or not self._edits:
            return None
        return frame(ascii_json(replace_members(members, {"delta": delta})), _DELTA)

    def _say(self, key: Key, text: str) -> bytes:
        delta = {"type": _TYPES[key.name], key.name: text}
        said = {"type": _DELTA.decode(), "index": key.part, "delta": delta}
        return frame(ascii_json(msgspec.json.encode(said)), _DELTA)
