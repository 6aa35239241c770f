"""Signatures that belong to a single part of an answer, on their way through a client that knows of none such.

Some providers sign not their thinking but what came of it: a call, a text, a picture. The signature has to come back on
the very part that it came with. Clients have no place for it there, so it travels as redacted thinking, which they do
give back untouched, and says itself what it belongs to: the text of the turn, its thinking, a call, or a picture.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Kind = Literal["text", "thought", "call", "image"]
_MARKS: dict[Kind, str] = {"text": "t", "thought": "h", "call": "c", "image": "i"}
_KINDS = {mark: kind for kind, mark in _MARKS.items()}
_PREFIX = "partsig1."  # no ciphertext of others has a dot: theirs are base64
_FORM = re.compile(r"partsig1\.([thci])([0-9]{1,3})\.(.+)", re.DOTALL)


class PartSignature(NamedTuple):
    """A provider's *signature* of a part; `slot` counts the calls, or the images, of a turn from 0."""

    kind: Kind
    slot: int
    signature: str


def write_signature(kind: Kind, slot: int, signature: str) -> str:
    """What stands for it in a client's history."""
    return f"{_PREFIX}{_MARKS[kind]}{slot}.{signature}"


def read_signature(redacted: str | None) -> PartSignature | None:
    """The signature that *redacted* thinking is; None for a real ciphertext, and for none."""
    found = _FORM.fullmatch(redacted) if redacted is not None and redacted.startswith(_PREFIX) else None
    return PartSignature(_KINDS[found[1]], int(found[2]), found[3]) if found is not None else None
