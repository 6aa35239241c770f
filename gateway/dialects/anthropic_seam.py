"""The seam of a continued answer in events of Anthropic messages."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.seam import Seam
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_START, _DELTA, _STOP = b"content_block_start", b"content_block_delta", b"content_block_stop"
_ENDS = (b"message_delta", b"message_stop")


class AnthropicSeam(Seam):
    """Blocks of one message. The second part goes on in the block that was open; further ones count on from it."""

    def __init__(self) -> None:
        super().__init__()
        self._open: int | None = None  # index of the block that is open to the client
        self._shift: int | None = None  # from the second part's indices to the client's, once it has begun a block

    @property
    def is_open(self) -> bool:
        """As in `Seam`; a text whose block was closed is over."""
        return super().is_open and self._open is not None

    def _hear(self, name: bytes, data: bytes) -> bool:
        members = decode_members(data)
        if name == _START:
            self._open = decode_values(members["index"])
            return bool(_member(members, "content_block").get("type") == "text")
        if name == _STOP:
            self._open = None
        elif name == _DELTA:
            delta = _member(members, "delta")
            text = delta.get("text")
            if delta.get("type") != "text_delta" or not isinstance(text, str):
                return False
            self._add(text)
        return name not in _ENDS

    def _join(self, name: bytes, data: bytes) -> bytes:
        if name == b"message_start":
            return b""
        if name in _ENDS:
            return self._close() + frame(data, name)
        if name not in (_START, _DELTA, _STOP):
            return frame(data, name)
        members = decode_members(data)
        index = decode_values(members["index"])
        if name == _START and self._shift is None:
            return self._begin(members, index)
        moved = index + (self._shift or 0)
        if name == _DELTA:
            return self._more(members, moved)
        before = self._rest(moved)
        self._open = moved if name == _START else None
        return before + _with(members, {"index": moved}, name)

    def _begin(self, members: dict[str, Raw], index: int) -> bytes:
        """The first block: text goes on in the one that is open, anything else closes that."""
        opened = self._open or 0
        if _member(members, "content_block").get("type") == "text":
            self._shift = opened - index
            return b""
        self._shift = opened + 1 - index
        closing = self._close()
        self._open = opened + 1
        return closing + _with(members, {"index": opened + 1}, _START)

    def _more(self, members: dict[str, Raw], index: int) -> bytes:
        delta = _member(members, "delta")
        if delta.get("type") != "text_delta":
            return _with(members, {"index": index}, _DELTA)
        text = self._joint.take(delta.get("text") or "")
        return _with(members, {"index": index, "delta": {**delta, "text": text}}, _DELTA) if text else b""

    def _rest(self, index: int) -> bytes:
        """What the joint still holds, as a piece of the block *index*."""
        text = self._joint.rest()
        delta = {"type": "text_delta", "text": text}
        return _said({"type": _DELTA.decode(), "index": index, "delta": delta}, _DELTA) if text else b""

    def _close(self) -> bytes:
        """The end of the block that is open, if one is."""
        if self._open is None:
            return b""
        index, self._open = self._open, None
        return self._rest(index) + _said({"type": _STOP.decode(), "index": index}, _STOP)


def _member(members: dict[str, Raw], name: str) -> dict[str, Any]:
    value = decode_values(members.get(name, Raw(b"null")))
    return value if isinstance(value, dict) else {}


def _with(members: dict[str, Raw], changes: dict[str, object], name: bytes) -> bytes:
    return frame(ascii_json(replace_members(members, changes)), name)


def _said(event: dict[str, object], name: bytes) -> bytes:
    return frame(ascii_json(msgspec.json.encode(event)), name)
