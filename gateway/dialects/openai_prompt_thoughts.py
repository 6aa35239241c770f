"""Reasoning in an OpenAI message, in the forms that `openai_prompt` describes."""

from __future__ import annotations

from typing import Any

from gateway.dialects.neutral import Notes, Thinking
from gateway.dialects.openai_prompt_parts import Placed
from gateway.dialects.validate import text_of

_PLAIN = ("reasoning_content", "reasoning")
_OUR_FAMILY = "claude"  # part of the `format` that routers give to the only signatures we can hand back


def read_thoughts(message: dict[str, Any], place: str, notes: Notes) -> list[Placed]:
    """What the assistant thought before the turn *message*. Raises GatewayError for a wrong type."""
    details, found = message.get("reasoning_details"), []
    if isinstance(details, list):
        found = _Details(f"{place}.reasoning_details", notes).read(details)
    elif details is not None:
        notes.drop(f"{place}.reasoning_details")
    plain = _plain(message, place)
    if plain is None or any(isinstance(part, Thinking) and part.text for _, part in found):
        return found
    return _with_text(found, plain)


def _plain(message: dict[str, Any], place: str) -> Placed | None:
    for name in _PLAIN:
        text = text_of(message.get(name) or "", f"{place}.{name}")
        if text:
            return Placed(f"{place}.{name}", Thinking(text))
    return None


def _with_text(found: list[Placed], plain: Placed) -> list[Placed]:
    """
    Entries without text of their own, and all the text.

    It belongs to the only signature; of several, none would be that of it all.
    """
    signed = [part.signature for _, part in found if isinstance(part, Thinking) and part.signature is not None]
    rest = [placed for placed in found if not isinstance(placed.part, Thinking) or placed.part.signature is None]
    text = plain.part
    if len(signed) == 1 and isinstance(text, Thinking):
        text = Thinking(text.text, signed[0])
    return [Placed(plain.place, text), *rest]


class _Details:
    """Entries of `reasoning_details`, of which those that belong together are joined."""

    def __init__(self, place: str, notes: Notes) -> None:
        self._place = place
        self._notes = notes
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
            elif entry.get("type") == "reasoning.encrypted" and _is_ours(entry):
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
            self._close(signature if _is_ours(entry) else None)

    def _close(self, signature: str | None = None) -> None:
        """The entry is whole."""
        text = "".join(self._pieces)
        if text or signature:
            self._found.append(Placed(self._started_at, Thinking(text, signature)))
        self._pieces.clear()


def _is_ours(entry: dict[str, Any]) -> bool:
    family = entry.get("format")
    return family is None or (isinstance(family, str) and _OUR_FAMILY in family)
