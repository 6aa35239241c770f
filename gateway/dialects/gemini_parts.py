"""The parts of a Gemini answer, read into neutral events."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.core.errors import UpstreamFailed
from gateway.dialects.failures import malformed
from gateway.dialects.neutral import AnswerEvent, Argued, Called, Cited, Pictured, Said, Thought
from gateway.dialects.openai_stream import MAX_TOOL_CALLS
from gateway.dialects.part_signatures import Kind, write_signature
from gateway.wire.headers import MAX_ID_CHARS

_PLACE = ("startIndex", "endIndex")
# Members that are read, or that say nothing by themselves.
_SILENT = frozenset(("thought", "thoughtSignature", "text", "partMetadata", "mediaResolution"))
MAX_CITATIONS = 1_000  # of an answer; a page of text has a dozen


class PartReader:
    """Reads the parts of one answer, in order.

    A signature comes with the part that it signs: in front of a call, which is one part, and behind a text, of which a
    stream has many.

    Attributes:
        calls: How many tools have been called so far.
        has_spoken: Something was said, called or shown.
        note: What there is no event for, for the log.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.has_spoken = False
        self.note: str | None = None
        self._images = 0
        self._ids: set[str] = set()
        self._cited: set[int] = set()  # digests: what is cited may be long

    def take(self, parts: object) -> list[AnswerEvent]:
        """
        What *parts* say.

        Raises:
            UpstreamFailed: A call without a name or without an object for its arguments, or too many of them.
        """
        out: list[AnswerEvent] = []
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                self._remark("foreign_part")
                continue
            signature = part.get("thoughtSignature")
            signed = signature if isinstance(signature, str) and signature else None
            if "functionCall" in part:
                out += self._call(part["functionCall"], signed)
            elif part.get("thought") is True:
                out += self._think(part, signed)
            else:
                out += self._say(part, signed)
        return out

    def cite(self, metadata: object) -> list[AnswerEvent]:
        """What `citationMetadata` says that was not said before: every chunk repeats it."""
        found = metadata.get("citationSources", metadata.get("citations")) if isinstance(metadata, dict) else None
        out: list[AnswerEvent] = []
        for source in found if isinstance(found, list) else ():
            uri = source.get("uri") if isinstance(source, dict) else None
            if not isinstance(uri, str) or not uri:  # a licence without an address
                continue
            title = source.get("title")
            key = hash((uri, *(source[name] if type(source.get(name)) is int else 0 for name in _PLACE)))
            if key not in self._cited and len(self._cited) < MAX_CITATIONS:
                self._cited.add(key)
                words = {"url": uri, "title": title if isinstance(title, str) else "", "cited_text": ""}
                out.append(Cited({"type": "web_search_result_location", **words, "encrypted_index": ""}))
        return out

    def _say(self, part: dict[str, Any], signed: str | None) -> list[AnswerEvent]:
        out: list[AnswerEvent] = []
        text, data = part.get("text"), part.get("inlineData")
        if isinstance(text, str) and text:
            out.append(Said(text))
        if (picture := _picture(data)) is not None:
            out.append(picture)
        elif not part.keys() <= _SILENT:
            self._remark("foreign_part")
        self.has_spoken |= bool(out)
        if picture is None:
            return out + _signed("text", 0, signed)
        self._images += 1
        return out + _signed("image", self._images - 1, signed)

    def _think(self, part: dict[str, Any], signed: str | None) -> list[AnswerEvent]:
        text = part.get("text")
        if not part.keys() <= _SILENT:
            self._remark("foreign_part")  # sketches of an image, before it
        out: list[AnswerEvent] = [Thought(text)] if isinstance(text, str) and text else []
        return out + _signed("thought", 0, signed)

    def _call(self, call: object, signed: str | None) -> list[AnswerEvent]:
        name = call.get("name") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(name, str) or not name:
            raise UpstreamFailed(malformed("a call without a name"))
        if self.calls >= MAX_TOOL_CALLS:
            raise UpstreamFailed(malformed("too many tool calls"))
        slot, self.calls = self.calls, self.calls + 1
        self.has_spoken = True
        out = _signed("call", slot, signed)
        out.append(Called(slot, self._id_of(call.get("id")), name))
        arguments = call.get("args")
        if arguments is None or arguments == {}:
            return out
        if not isinstance(arguments, dict):
            raise UpstreamFailed(malformed("tool arguments that are no object"))
        return [*out, Argued(slot, msgspec.json.encode(arguments).decode())]

    def _id_of(self, said: object) -> str:
        """The provider's id; none where it has none, or a very long one, or gives the same to two calls."""
        if not isinstance(said, str) or len(said) > MAX_ID_CHARS or said in self._ids:
            return ""
        self._ids.add(said)
        return said

    def _remark(self, note: str) -> None:
        self.note = self.note or note


def _signed(kind: Kind, slot: int, signature: str | None) -> list[AnswerEvent]:
    return [Thought(redacted=write_signature(kind, slot, signature))] if signature is not None else []


def _picture(data: object) -> Pictured | None:
    if not isinstance(data, dict):
        return None
    media_type, content = data.get("mimeType"), data.get("data")
    if not isinstance(media_type, str) or not media_type.startswith("image/") or not isinstance(content, str):
        return None
    return Pictured(media_type, content)
