"""Counting the tokens of a prompt, as Anthropic's clients ask for it: the call without an answer."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.core.call import Call, CallOptions
from gateway.core.errors import UpstreamFailed
from gateway.core.usage import Basis, count
from gateway.dialects.answer import read_answer
from gateway.dialects.base import Counting
from gateway.dialects.failures import in_band_failure, malformed
from gateway.dialects.validate import read_facts, read_members
from gateway.wire.body import replace_members

_TOKENS = "input_tokens"


class _Message(Struct, gc=False):
    role: Annotated[str, Meta(min_length=1)]


class PromptFacts(Struct, gc=False, kw_only=True):
    """What a prompt has, whether it is to be answered or counted."""

    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    system: str | list[dict[str, Raw]] | None = None
    tools: list[dict[str, Raw]] | None = None
    tool_choice: dict[str, Raw] | None = None


_facts = msgspec.json.Decoder(PromptFacts)


def read_call(body: bytes, options: CallOptions, forward_headers: tuple[tuple[str, str], ...]) -> Call:
    """*body* as a `Call` whose task is to be counted. Raises GatewayError (400) naming the field at fault."""
    fields = read_members(body)
    facts = read_facts(_facts, body)
    return Call(
        dialect="anthropic_messages",
        fields=fields,
        slug=facts.model,
        stream=False,
        options=options,
        forward_headers=forward_headers,
        task="count",
    )


def read_count(body: bytes) -> dict[str, Raw]:
    """A provider's answer, its members untouched. Raises UpstreamFailed for one without a count that can be one."""
    members, root = read_answer(body)
    if root.get("type") == "error" or root.get("error"):
        raise UpstreamFailed(in_band_failure(body))
    if count(root.get(_TOKENS)) is None:
        raise UpstreamFailed(malformed("no input_tokens in the answer"))
    return members


def write_count(call: Call, counted: dict[str, Raw] | int, basis: Basis) -> bytes:
    """The client's answer: a provider's members, or our own estimate, and which of the two it is."""
    members = {_TOKENS: Raw(b"%d" % counted)} if isinstance(counted, int) else counted
    changes: dict[str, object] = {} if call.options.strip_extension else {"_anoman": {"usage_basis": basis}}
    return replace_members({name: raw for name, raw in members.items() if name != "_anoman"}, changes)


COUNTING = Counting(
    path="/anthropic/v1/messages/count_tokens",
    upstream_path="/v1/messages/count_tokens",
    read_call=read_call,
    read_count=read_count,
    write_count=write_count,
)
