"""Reasoning in an OpenAI message, in the forms that `openai_prompt` describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.dialects.neutral import Notes, Thinking
from gateway.dialects.openai_words import is_ours
from gateway.dialects.parts import Placed
from gateway.dialects.validate import text_of

_PLAIN = ("reasoning_content", "reasoning")


def read_thoughts(message: dict[str, Any], place: str, notes: Notes) -> list[Placed]:
    """What the assistant thought before the turn *message*. Raises GatewayError for a wrong type."""
    details, found, lengths = message.get("reasoning_details"), [], dict[int, int]()
    if isinstance(details, list):
        reader = _Details(f"{place}.reasoning_details", notes)
        found, lengths = reader.read(details), reader.lengths
    elif details is not None:
        notes.drop(f"{place}.reasoning_details")
    plain = _plain(message, place)
    if plain is None or any(isinstance(part, Thinking) and part.text for _, part, _ in found):
        return found
    return _with_text(found, plain, lengths)


def _plain(message: dict[str, Any], place: str) -> Placed | None:
    for name in _PLAIN:
        text = text_of(message.get(name) or "", f"{place}.{name}")
        if text:
            return Placed(f"{place}.{name}", Thinking(text))
    return None


def _with_text(found: list[Placed], plain: Placed, lengths: Mapping[int, int]) -> list[Placed]:
    """
    Entries without text of their own, and all the text.

    Each signature gets the part of the text that its length tells. Where the lengths are not those of the text, it
    belongs to the only signature; of several, none would be that of it all.
    """
    signed = {
        at: part for at, (_, part, _) in enumerate(found) if isinstance(part, Thinking) and part.signature is not None
    }
    text = plain.part
    assert isinstance(text, Thinking)
    if len(lengths) == len(signed) and sum(lengths.values()) == len(text.text):
        return _cut(found, text.text, lengths)
    rest = [placed for at, placed in enumerate(found) if at not in signed]
    if len(signed) == 1:
        (only,) = signed.values()
        text = Thinking(text.text, only.signature)
    return [Placed(plain.place, text), *rest]


def _cut(found: list[Placed], text: str, lengths: Mapping[int, int]) -> list[Placed]:
    out, start = list(found), 0
    for at, length in lengths.items():
        place, part, _ = found[at]
        assert isinstance(part, Thinking)
        out[at] = Placed(place, Thinking(text[start : start + length], part.signature))
        start += length
    return out


class _Details:
    """
    Entries of `reasoning_details`, of which those that belong together are joined.

    Attributes:
        lengths: Of signed entries without text, by their position: how many characters were signed.
    """

    def __init__(self, place: str, notes: Notes) -> None:
        self._place = place
        self._notes = notes
        self.lengths: dict[int, int] = {}
        self._found: list[Placed] = []
        self._pieces: list[str] = []
        self._started_at = place
        self._index: Any = None

    def read(self, details: list[Any]) -> list[Placed]:
        for at, entry in enumerate(details):
            place = f"{self._place}[{at}]"
            if not isinstance(entry, dict):
                self._notes.drop(place)
            elif entry.get("type") == "reasoning.text":
                self._take_text(entry, place)
            elif entry.get("type") == "reasoning.encrypted" and is_ours(entry):
                self._close()
                data = text_of(entry.get("data"), f"{place}.data")
                self._found.append(Placed(place, Thinking(redacted=data)))
            else:
                self._notes.drop(place)
        self._close()
        return self._found

    def _take_text(self, entry: dict[str, Any], place: str) -> None:
        index = entry.get("index")
        if self._pieces and index != self._index:
            self._close()
        if not self._pieces:
            self._started_at, self._index = place, index
        self._pieces.append(text_of(entry.get("text") or "", f"{place}.text"))
        signature = text_of(entry.get("signature") or "", f"{place}.signature")
        if signature:
            length = entry.get("text_length")
            if is_ours(entry) and not "".join(self._pieces) and type(length) is int and length >= 0:
                self.lengths[len(self._found)] = length
            self._close(signature if is_ours(entry) else None)

    def _close(self, signature: str | None = None) -> None:
        """The entry is whole."""
        text = "".join(self._pieces)
        if text or signature:
            self._found.append(Placed(self._started_at, Thinking(text, signature)))
        self._pieces.clear()
