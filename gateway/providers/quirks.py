"""What vendors of OpenAI's dialect want otherwise than OpenAI: named functions, for rows of the vendors' table.

Each is a `Quirk`. They are applied to bodies that clients wrote themselves; done twice they change nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from gateway.core.catalog import Remarks
from gateway.dialects.openai_native import NULL, Message, change_messages, limit_of
from gateway.wire.values import decode_values

_parts = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_OF_TEXT = ("type", "text")
_LIST = ord("[")


def text_as_string(fields: Mapping[str, Raw], remarks: Remarks) -> Mapping[str, Raw]:
    """
    Contents that are lists of text become one text, a line for each part, as translated ones do.

    What else a part of text has, such as a mark for a cache, has no place in a string and is dropped. A list with
    anything but text stays.
    """

    def change(at: int, message: Message) -> Mapping[str, object] | None:
        parts = _texts(message.content)
        if parts is None:
            return None
        place = f"messages[{at}].content"
        remarks.translate(place)
        for index, part in enumerate(parts):
            for name in part.keys() - _OF_TEXT:
                if part[name] != NULL:
                    remarks.drop(f"{place}[{index}].{name}")
        return {"content": "\n".join(text for part in parts if (text := decode_values(part["text"])))}

    return change_messages(fields, change)


def _texts(content: Raw) -> list[dict[str, Raw]] | None:
    """The parts of *content* if all of them are texts, and there are any."""
    if memoryview(content)[0] != _LIST:  # no copy of what may be long
        return None
    try:
        parts = _parts(content)
    except msgspec.DecodeError:  # a part that is no object
        return None
    return parts if parts and all(map(_is_text, parts)) else None


def _is_text(part: Mapping[str, Raw]) -> bool:
    kind, text = part.get("type"), part.get("text")
    return kind is not None and text is not None and decode_values(kind) == "text" and bytes(text).startswith(b'"')


def system_for_developer(fields: Mapping[str, Raw], remarks: Remarks) -> Mapping[str, Raw]:
    """Instructions go by their older name: messages of the `developer` become ones of the `system`."""

    def change(at: int, message: Message) -> Mapping[str, object] | None:
        if message.role != "developer":
            return None
        remarks.translate(f"messages[{at}].role")
        return {"role": "system"}

    return change_messages(fields, change)


def fold_max_completion_tokens(fields: Mapping[str, Raw], remarks: Remarks) -> Mapping[str, Raw]:
    """The limit goes by its older name, `max_tokens`: the smaller one where a call has both."""
    asked = limit_of(fields, "max_completion_tokens")
    if "max_completion_tokens" not in fields:
        return fields
    folded = {name: value for name, value in fields.items() if name != "max_completion_tokens"}
    if asked is not None:
        older = limit_of(fields, "max_tokens")
        folded["max_tokens"] = Raw(b"%d" % (asked if older is None else min(asked, older)))
        remarks.translate("max_completion_tokens")
    return folded
