"""A call as pieces, each of which is read on its own: its messages, its tools, and its other members."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct, structs

from gateway.core.call import TOOLS, Call
from gateway.core.guarding import Role
from gateway.dialects.forms import is_quiet, is_stop
from gateway.dialects.hearing import WORDS, Heard, hear, place_of
from gateway.dialects.validate import read_metadata, read_user
from gateway.wire.splice import Path, splice
from gateway.wire.values import decode_values

_LISTS = ("messages", *TOOLS)
# Members that are read first, in this order; the others follow in the caller's. So a call that has grown by a turn has
# what it had before in the order that it had before.
_FIRST = ("system", *_LISTS)
# Members by which no text reaches a model: what an answer is to be like, in words of the API. What is none is read.
_SILENT = frozenset(
    {"tool_choice", "function_call", "service_tier", "modalities", "include",
     "reasoning", "reasoning_effort", "thinking", "betas", "stream_options", "logit_bias"}
)  # fmt: skip
_DEFINITIONS = frozenset((*TOOLS, "response_format", "output_config", "output_format"))
_STOPS = ("stop", "stop_sequences")
_COUNTED = frozenset(("seed", "max_tokens", "max_completion_tokens"))  # members that are a number, however long
# Members in which names mean what they mean to the API; in all others they are the caller's.
_KNOWN = frozenset(("messages", "system", "prediction", "mcp_servers"))
_OF_CALLERS = ("user", "metadata")
_decode_items = msgspec.json.Decoder(list[Raw]).decode
_LONG_NUMBER = 8  # characters
_MAY_SPEAK = b'"[{'  # what the JSON of a value with a text in it begins with


class Piece(Struct, frozen=True):
    """
    Attributes:
        path: The member it is, and where in it: `("messages", 3)`.
        raw: Its JSON.
        role: Whose words it is made of, where it does not say so itself.
    """

    path: Path
    raw: Raw
    role: Role


def pieces_of(call: Call) -> list[Piece]:
    """All of *call* that may hold texts, in an order that stays the same when it grows."""
    fields = call.fields
    found: list[Piece] = []
    for name in (*_FIRST, *(name for name in fields if name not in _FIRST)):
        raw = fields.get(name)
        if raw is None or not _may_speak(name, raw):
            continue
        role: Role = "definition" if name in _DEFINITIONS else "system" if name == "system" else "user"
        if name in _LISTS and bytes(raw)[:1] == b"[":
            found += [Piece((name, at), item, role) for at, item in enumerate(_decode_items(raw))]
        else:
            found.append(Piece((name,), raw, role))
    return found


def _may_speak(name: str, raw: Raw) -> bool:
    """Whether the member *name* may hold a text: one that is of the API's words holds none where it has their form."""
    if name == "model":
        return False
    if bytes(raw)[:1] not in _MAY_SPEAK:
        return len(raw) >= _LONG_NUMBER and name not in _COUNTED
    if name in _SILENT:
        return not is_quiet(raw)
    return name not in _STOPS or not is_stop(decode_values(raw))


def texts_of(piece: Piece, call: Call) -> list[Heard]:
    """The texts of a *piece* of *call*."""
    return hear(piece.raw, piece.role, call.held, is_free=piece.path[0] not in _KNOWN)


def place_in(piece: Piece, heard: Heard) -> str:
    """Where a text stands, in the words of the API: down to where names of the caller's choice begin."""
    steps = (*piece.path, *heard.path)
    own = next((at for at, step in enumerate(steps) if at and isinstance(step, str) and step not in WORDS), len(steps))
    return place_of(steps[:own])


def with_pieces(call: Call, changed: Mapping[Path, Raw]) -> Call:
    """*call* with other pieces at some paths, and with what it says of its caller read anew."""
    fields = dict(call.fields)
    names = {path[0] for path in changed}
    for name in names:
        assert isinstance(name, str)
        fields[name] = splice(fields[name], {path[1:]: raw for path, raw in changed.items() if path[0] == name})
    call = structs.replace(call, fields=fields)
    return call if names.isdisjoint(_OF_CALLERS) else _with_caller(call)


def _with_caller(call: Call) -> Call:
    """*call* with its user and metadata as its members say them now; they were checked when it was read."""
    said = {name: decode_values(call.fields[name]) for name in _OF_CALLERS if name in call.fields}
    metadata = said.get("metadata") or {}
    if call.dialect == "anthropic_messages":
        return structs.replace(call, user=read_user(metadata.get("user_id")))
    return structs.replace(call, user=read_user(said.get("user")), metadata=read_metadata(metadata))
