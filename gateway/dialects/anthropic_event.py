"""One event or content block of Anthropic's dialect, read as far as its meaning needs it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from gateway.dialects.failures import ABSENT
from gateway.dialects.lane import read_json
from gateway.wire.values import decode_members, decode_values

MAX_PLAIN_BYTES = 4096  # content events have some 300; of that length none can have too many elements


class Delta(Struct, gc=False):
    """`delta` of a content_block_delta or of a message_delta. `citation` is `ABSENT` itself where there is none."""

    text: str | None = None
    partial_json: str | None = None
    thinking: str | None = None
    signature: str | None = None
    citation: Raw = ABSENT
    stop_reason: str | None = None
    stop_sequence: str | None = None
    stop_details: Raw = ABSENT


class Block(Struct, gc=False):
    """A content block as it starts, or as it is in a JSON answer."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = ABSENT
    citations: Raw = ABSENT


class StreamEvent(Struct, gc=False):
    type: str | None = None
    index: int | None = None
    delta: Delta | None = None
    content_block: Block | None = None
    message: Raw = ABSENT
    usage: Raw = ABSENT
    error: Raw = ABSENT


S = TypeVar("S", bound=Struct)
_read_block = msgspec.json.Decoder(Block).decode
_read_event = msgspec.json.Decoder(StreamEvent).decode


def read_event(data: bytes) -> tuple[StreamEvent, bytes] | None:
    """
    An event's *data*, and the JSON it was read from; what can be mended is, in parts that stay raw too.

    Returns:
        None when it is no JSON object that an event can be.
    """
    if len(data) <= MAX_PLAIN_BYTES:
        try:
            event = _read_event(data)
        except (msgspec.DecodeError, RecursionError):
            return read_json(data, _read_checked, _read_leniently)
        delta = event.delta
        # The only event of which nothing stays raw that is read later.
        if event.type == "content_block_delta" and delta is not None and delta.citation is event.error is ABSENT:
            return event, data
    return read_json(data, _read_checked, _read_leniently)


def read_block(raw: bytes | Raw) -> Block:
    """A block of a JSON answer, which has to be an object; members of unexpected types count as absent."""
    try:
        return _read_block(raw)
    except msgspec.ValidationError:
        return leniently(Block, decode_members(raw))


def leniently(kind: type[S], members: dict[str, Raw]) -> S:
    """A *kind*, whose members are texts or `Raw`, of the *members* that are of the expected type."""
    out = kind()
    for name in members.keys() & set(kind.__struct_fields__):
        if getattr(out, name) is ABSENT:
            setattr(out, name, members[name])
        elif isinstance(value := decode_values(members[name]), str):
            setattr(out, name, value)
    return out


def _read_checked(payload: bytes) -> StreamEvent:
    """*payload* as an event; raises msgspec.DecodeError also where a part that stays raw is at fault."""
    decode_values(payload)
    return _read_event(payload)


def _read_leniently(payload: bytes) -> StreamEvent:
    """
    *payload* as an event, whatever types its members have.

    Raises:
        msgspec.DecodeError: Not a JSON object.
    """
    members = decode_members(payload)
    index: Any = decode_values(members.pop("index", ABSENT))
    delta, block = members.pop("delta", ABSENT), members.pop("content_block", ABSENT)
    out = leniently(StreamEvent, members)
    out.index = index if type(index) is int else None
    if isinstance(decode_values(delta), dict):
        out.delta = leniently(Delta, decode_members(delta))
    if isinstance(decode_values(block), dict):
        out.content_block = leniently(Block, decode_members(block))
    return out
