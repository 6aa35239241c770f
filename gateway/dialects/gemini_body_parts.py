"""Neutral parts as parts of a Gemini turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.dialects.neutral import PDF, Document, Image, Notes, Part, ToolResult
from gateway.dialects.parts import is_file, words_of
from gateway.dialects.validate import refuse

Written = dict[str, Any]

# Of the files of the account that the gateway has there, which are no client's to name.
_KEPT = "generativelanguage.googleapis.com"
_ELSEWHERE = "Its files follow."


def text_of_part(part: Part) -> Written:
    """A text, or a document that is one."""
    return {"text": words_of(part)}


def file_part(part: Part, place: str, notes: Notes) -> Written:
    """
    A picture by its bytes; a PDF by its bytes, or by its public URL, from which Google fetches it.

    Pictures by URL are fetched before they come here, and any that was not goes nowhere.

    Raises:
        GatewayError: It has neither, or a URL of the provider's own.
    """
    if isinstance(part, Image) and part.detail not in (None, "auto"):
        notes.drop(f"{place}.image_url.detail")  # the one dialect that has it spells it so
    if isinstance(part, Document) and part.url is not None:
        if _KEPT in part.url.lower():
            raise refuse(place, f"{place}: files kept at the provider cannot be used here; send the file itself.")
        return {"fileData": {"fileUri": part.url, "mimeType": PDF}}
    if isinstance(part, Image | Document) and part.data is not None:
        return _inline(part)
    raise refuse(place, f"{place}: this model takes the file itself, not its URL.")


def result_part(result: ToolResult, name: str, *, holds_files: bool) -> tuple[Written, Sequence[Part]]:
    """
    What the tool *name* gave back, and those of its files that have to stand outside.

    Args:
        holds_files: Whether the model takes files inside of results. By URL none does.
    """
    inside: list[Part] = []
    outside: list[Part] = []
    for file in filter(is_file, result.parts):
        (inside if holds_files and _has_data(file) else outside).append(file)
    lines = [words_of(part) for part in result.parts if not is_file(part)]
    if outside:
        lines.append(_ELSEWHERE)
    response = {"error" if result.is_error else "result": "\n".join(lines)}
    written: Written = {"id": result.call_id, "name": name, "response": response}
    if inside:
        written["parts"] = [_inline(part) for part in inside]
    return {"functionResponse": written}, outside


def _has_data(part: Part) -> bool:
    return isinstance(part, Image | Document) and part.data is not None


def _inline(part: Part) -> Written:
    assert isinstance(part, Image | Document)
    return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
