"""What one OpenAI `delta` or `message` says besides its tool calls, in neutral events."""

from __future__ import annotations

from typing import Any

from gateway.dialects.neutral import AnswerEvent, Cited, Refused, Said, Thought
from gateway.dialects.openai_chunk import Delta, may_be_content

# Some vendors send reasoning twice: as text, and in pieces with signatures or ciphertext, as the next call needs them.
_DETAILS = "reasoning_details"
_ANNOTATIONS = "annotations"
APART = (f'"{_DETAILS}"'.encode(), f'"{_ANNOTATIONS}"'.encode())  # members that `plain_words` does not look at
_KNOWN = frozenset(Delta.__struct_fields__) | {_DETAILS, _ANNOTATIONS}
_OUR_FAMILY = "claude"  # part of the `format` that routers give to the only signatures that can be handed on
_PART_TEXTS: dict[str, type[Said] | type[Refused]] = {"text": Said, "refusal": Refused}


def plain_words(delta: Delta) -> list[AnswerEvent]:
    """The words of a *delta* whose members are all of the expected types and that has nothing of `APART`."""
    out: list[AnswerEvent] = []
    if reasoning := delta.reasoning_content or delta.reasoning:
        out.append(Thought(reasoning))
    if delta.content:
        out.append(Said(delta.content))
    if delta.refusal:
        out.append(Refused(delta.refusal))
    return out


def words(said: dict[str, Any]) -> list[AnswerEvent]:
    """The words of a delta or message read by `decode_values`, whatever types its members have."""
    out = _thoughts(said)
    content = said.get("content")
    if isinstance(content, list):  # some vendors send parts
        for part in content:
            out += _part(part) or ()
    elif text := _text(said, "content"):
        out.append(Said(text))
    if refusal := _text(said, "refusal"):
        out.append(Refused(refusal))
    return out + [cited for entry in _annotations(said) if (cited := _cited(entry)) is not None]


def _annotations(said: dict[str, Any]) -> list[Any]:
    given = said.get(_ANNOTATIONS)
    return given if isinstance(given, list) else []


def _cited(entry: Any) -> Cited | None:
    """A source on the web, in the form that Anthropic has for those that its own search finds; None for others."""
    source = entry.get("url_citation") if isinstance(entry, dict) else None
    if not isinstance(source, dict) or not (url := _text(source, "url")):
        return None
    start, end = source.get("start_index"), source.get("end_index")
    chars = max(0, end - start) if type(start) is int and type(end) is int else 0
    said = {"url": url, "title": _text(source, "title"), "cited_text": _text(source, "content")}
    return Cited({"type": "web_search_result_location", **said, "encrypted_index": ""}, chars)


def has_unknown(said: dict[str, Any]) -> bool:
    """Whether *said* has something that we have no event for: audio, images, places in files."""
    if any(may_be_content(value) for name, value in said.items() if name not in _KNOWN):
        return True
    if any(_cited(entry) is None for entry in _annotations(said)):
        return True
    content = said.get("content")
    return isinstance(content, list) and any(_part(part) is None for part in content)


def _thoughts(said: dict[str, Any]) -> list[AnswerEvent]:
    details = said.get(_DETAILS)
    pieces = [_detail(item) for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    out: list[AnswerEvent] = [piece for piece in pieces if piece != Thought()]
    if not any(piece.text for piece in pieces):
        text = _text(said, "reasoning_content") or _text(said, "reasoning")
        if text:
            out.insert(0, Thought(text))
    return out


def is_ours(entry: dict[str, Any]) -> bool:
    """Whether *entry* of reasoning details can be signed for the model that gets it: another family's never is."""
    family = entry.get("format")
    return family is None or (isinstance(family, str) and _OUR_FAMILY in family)


def _detail(item: dict[str, Any]) -> Thought:
    ours = is_ours(item)
    if data := _text(item, "data"):
        return Thought(redacted=data) if ours else Thought()
    signature = _text(item, "signature") if ours else ""
    return Thought(_text(item, "text") or _text(item, "summary"), signature=signature or None)


def _part(part: object) -> list[AnswerEvent] | None:
    """The words of one content part; None for a part of another kind."""
    if not isinstance(part, dict):
        return None
    for name, kind in _PART_TEXTS.items():
        if isinstance(part.get(name), str):
            return [kind(part[name])] if part[name] else []
    thinking = part.get("thinking")
    if isinstance(thinking, list):
        thinking = "".join(_text(piece, "text") for piece in thinking if isinstance(piece, dict))
    if not isinstance(thinking, str):
        return None
    return [Thought(thinking)] if thinking else []


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    return value if isinstance(value, str) else ""
