"""Bodies that stay in OpenAI's dialect: what is changed in them, member by member. The rest keeps its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import UNSET, Raw, Struct

from gateway.core.call import TOOLS, is_nothing
from gateway.core.catalog import Remarks
from gateway.wire.body import replace_members
from gateway.wire.values import decode_members, decode_values

LIMITS = ("max_tokens", "max_completion_tokens")
# What says how tools are to be used; OpenAI refuses it where there are none. A wish for a certain tool, or for any,
# stays all the same: that is the caller's mistake, and the provider says so.
_USES = {"tool_choice": ("auto", "none", None), "function_call": ("auto", "none", None)}
NULL = Raw(b"null")
_ABSENT = Raw()


class Message(Struct, gc=False):
    """What is looked at of a message; an absent content is null, which says as much."""

    role: str
    content: Raw = NULL
    tool_calls: Raw = _ABSENT


# Other members are skipped. So it takes 30 us for the 50 kB of an agent, where a search for bytes takes 20 to 60 by
# what is looked for (measured); and it knows every spelling that JSON has for a name.
_read = msgspec.json.Decoder(list[Message]).decode
_split = msgspec.json.Decoder(list[Raw]).decode

Change = Callable[[int, Message], Mapping[str, object] | None]
"""Tells by position and message what becomes of its members, UNSET for those that go; None where it stays."""


def change_messages(fields: Mapping[str, Raw], change: Change) -> Mapping[str, Raw]:
    """*fields* with the messages written anew that *change* has something to say of; *fields* themselves if none."""
    messages = fields["messages"]
    changes = {at: new for at, message in enumerate(_read(messages)) if (new := change(at, message)) is not None}
    if not changes:
        return fields
    pieces = _split(messages)
    for at, new in changes.items():
        gone = frozenset(name for name, value in new.items() if value is UNSET)
        pieces[at] = Raw(replace_members(decode_members(pieces[at]), new, drop=gone))
    return {**fields, "messages": Raw(msgspec.json.encode(pieces))}


def without_nothing(fields: Mapping[str, Raw]) -> Mapping[str, Raw]:
    """*fields* without lists of tools, or of calls, in which there is nothing: strict providers refuse them."""
    gone = {name for name in TOOLS if name in fields and is_nothing(fields[name])}
    if gone and not any(name in fields and name not in gone for name in TOOLS):
        gone |= {name for name, any_use in _USES.items() if name in fields and decode_values(fields[name]) in any_use}
        gone.add("parallel_tool_calls")
    if gone:
        fields = {name: value for name, value in fields.items() if name not in gone}
    if b"tool_calls" not in bytes(fields["messages"]):  # 20 us for 50 kB (measured)
        return fields
    return change_messages(fields, _without_calls)


def _without_calls(at: int, message: Message) -> Mapping[str, object] | None:
    calls = message.tool_calls
    return {"tool_calls": UNSET} if calls is not _ABSENT and is_nothing(calls) else None


def within_limit(fields: Mapping[str, Raw], limit: int | None, remarks: Remarks) -> Mapping[str, Raw]:
    """*fields* with no limit above *limit*, the tokens that the model can answer with."""
    lowered: dict[str, Raw] = {}
    for name in LIMITS:
        asked = limit_of(fields, name)
        if limit is not None and asked is not None and asked > limit:
            lowered[name] = Raw(b"%d" % limit)
            remarks.translate(name)
    return {**fields, **lowered} if lowered else fields


def limit_of(fields: Mapping[str, Raw], name: str) -> int | None:
    """The member *name* as a number of tokens; None where it is absent or none."""
    value = decode_values(fields[name]) if name in fields else None
    return value if isinstance(value, int) else None
