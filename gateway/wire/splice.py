"""Values put into JSON at given places, while the rest stays the bytes it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from gateway.wire.values import decode_members

Path = tuple[str | int, ...]
"""Keys of objects and positions in arrays, from the root."""

_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def splice(payload: msgspec.Raw, changes: Mapping[Path, object]) -> msgspec.Raw:
    """*payload* with *changes*, whose paths lead to values in it, none of them inside of another."""
    return msgspec.Raw(_encode(_put(payload, sorted(changes.items(), key=_order))))


def _order(change: tuple[Path, object]) -> tuple[str, ...]:
    return tuple(map(str, change[0]))


def _put(payload: msgspec.Raw, changes: Sequence[tuple[Path, object]]) -> object:
    if not changes[0][0]:
        return changes[0][1]
    is_array = isinstance(changes[0][0][0], int)
    inside: Any = _decode_items(payload) if is_array else decode_members(payload)
    for head, group in groupby(changes, key=lambda change: change[0][0]):
        inside[head] = _put(inside[head], [(path[1:], value) for path, value in group])
    return inside
