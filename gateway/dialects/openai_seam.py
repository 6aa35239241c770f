"""The seam of a continued answer in chunks of OpenAI chat completions."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.dialects.openai_stream import METADATA
from gateway.dialects.seam import Seam
from gateway.wire.ascii import ascii_json
from gateway.wire.body import replace_members
from gateway.wire.sse import frame
from gateway.wire.values import decode_members, decode_values

_ENVELOPE = ("id", "created")
_NOT_TEXT = ("index", "finish_reason", "logprobs")  # another choice than the first, an end, or more than its text
_NULL = b"null"


class OpenAISeam(Seam):
    """Chunks of one choice. The second part gets the first's id and time, and says its role no more."""

    def __init__(self) -> None:
        super().__init__()
        self._envelope: dict[str, object] = {}

    def _hear(self, name: bytes, data: bytes) -> bool:
        members = decode_members(data)
        self._envelope = self._envelope or {one: members[one] for one in _ENVELOPE if one in members}
        for choice in decode_values(members.get("choices", Raw(b"[]"))):
            said = {member: value for member, value in (choice.get("delta") or {}).items() if value}
            said.pop("role", None)
            text = said.pop("content", "")
            if said or not isinstance(text, str) or any(choice.get(member) for member in _NOT_TEXT):
                return False
            if text:
                self._add(text)
        return True

    def _join(self, name: bytes, data: bytes) -> bytes:
        if not data.startswith(b"{"):  # the terminator
            return frame(data)
        members = decode_members(data)
        if "choices" not in members or "error" in members:
            return frame(data)
        changes = dict(self._envelope)
        if decode_values(members.get("object", Raw(_NULL))) != METADATA:
            choices = decode_values(members["choices"])
            if not self._mend(choices) and bytes(members.get("usage", Raw(_NULL))) == _NULL:
                return b""
            changes["choices"] = choices
        return frame(ascii_json(replace_members(members, changes)))

    def _mend(self, choices: list[dict[str, Any]]) -> bool:
        """Take out of *choices* what was said before; whether they say anything then."""
        for choice in choices:
            delta = choice.get("delta") or {}
            delta.pop("role", None)
            text = delta.get("content")
            if isinstance(text, str):
                delta["content"] = self._joint.take(text)
            if choice.get("finish_reason") and (rest := self._joint.rest()):
                delta["content"] = (delta.get("content") or "") + rest
            if choice.get("finish_reason") and not delta.get("content"):
                delta.pop("content", None)
            choice["delta"] = delta
        return any(choice.get("finish_reason") or any(choice["delta"].values()) for choice in choices)
