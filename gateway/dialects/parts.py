"""Parts of turns as writers of bodies look at them: where each stands, and which are files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gateway.dialects.neutral import PDF, Document, Image, Message, Part, Text


class Placed(NamedTuple):
    """A part, what the client calls its place, and the name of who said it."""

    place: str
    part: Part
    author: str | None = None


def parts_of(turns: Iterable[Message]) -> list[Placed]:
    """The parts of *turns*, in order."""
    return [Placed(turn.place_of(at), part, turn.name) for turn in turns for at, part in enumerate(turn.parts)]


def is_file(part: Part) -> bool:
    """Whether *part* is no text."""
    return isinstance(part, Image) or (isinstance(part, Document) and (part.data is None or part.media_type == PDF))


def words_of(part: Part) -> str:
    """A text, or a document that is one; "" for any other part."""
    if isinstance(part, Document):
        return f"{part.name}\n{part.data}" if part.name else part.data or ""
    return part.text if isinstance(part, Text) else ""
