"""Where the pictures of a call are, and how one is put in the place of another, in the words of each dialect."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import Raw, Struct

from gateway.dialects.validate import refuse
from gateway.wire.splice import Path

_URLS = ("https://", "http://")
_MAX_HEAD_CHARS = 512  # of a data URL: a media type has up to 255 (RFC 6838), its parameters a few more


class Picture(Struct, frozen=True, gc=False):
    """A picture of a call, as `neutral.Image`: by `url`, or as `data`; neither where only its provider knows it.

    Attributes:
        place: What the client calls it, for refusals.
        path: From the messages to what `Pictures.spell` replaces.
        media_type: What the client says that it is.
    """

    place: str
    path: Path
    url: str | None = None
    media_type: str | None = None
    data: str | None = None


@dataclass(frozen=True, slots=True)
class Pictures:
    """
    Attributes:
        find: Every picture of the messages, as `decode_values` gives them, those in results of tools included. Raises
            GatewayError (400) for what stands in the place of one.
        spell: What stands at the path of a picture with this media type and base64.
        claim: Where a picture that is here says what it is, and what it says for this media type.
    """

    find: Callable[[Any], list[Picture]]
    spell: Callable[[str, str], object]
    claim: Callable[[Picture, str], tuple[Path, object]]


_PLAIN_TYPE = re.compile(rb'"type"[ \t\r\n]{0,32}:[ \t\r\n]{0,32}"image(?:_url)?"')


def may_show(messages: Raw) -> bool:
    """Whether there may be a picture in *messages*; False only where there is none, however its type is escaped."""
    text = bytes(messages)
    # Each letter of "image" is \u006 and a digit more, and nobody writes these so but to pass unseen.
    return b"image" in text or b"\\u006" in text


def plainly_shown(messages: Raw) -> int:
    """How many pictures are in *messages* whose types are spelled without escapes, by counting instead of reading."""
    return len(_PLAIN_TYPE.findall(bytes(messages)))


def is_public(url: str) -> bool:
    """Whether *url* is one of the web's."""
    return url[:8].lower().startswith(_URLS)


def split_data_url(url: str, place: str) -> tuple[str, str]:
    """Media type, without its parameters, and base64 of a data URL (RFC 2397). Raises GatewayError for what is none."""
    comma = url.find(",", 0, _MAX_HEAD_CHARS)
    head, data = url[: max(comma, 0)], url[comma + 1 :]
    scheme, _, declared = head.partition(":")
    media_type, *parameters = declared.lower().split(";")
    if scheme.lower() != "data" or "base64" not in parameters:
        raise refuse(place, f"{place} must be an http or https URL, or a data URL in base64.")
    return media_type, data
