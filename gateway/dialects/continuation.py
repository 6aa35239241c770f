"""A stream that broke is taken up by another route: whether that is sound, what is asked, how the two become one.

It is sound where the answer is plain text and nothing but text was asked for. So calls are judged by the members that
are known to be harmless: one that nobody here has thought of is a reason not to continue.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from gateway.core.call import TOOLS, Call, suited, tool_members
from gateway.core.catalog import DialectName, Route
from gateway.core.errors import Failure
from gateway.core.receipt import Receipt
from gateway.core.usage import Basis, Usage
from gateway.dialects.anthropic_seam import AnthropicSeam
from gateway.dialects.base import Lane
from gateway.dialects.openai_seam import OpenAISeam
from gateway.dialects.over import Over
from gateway.dialects.pairs import is_native
from gateway.dialects.seam import Seam
from gateway.wire.values import decode_members, decode_values

_SEAMS: Mapping[DialectName, type[Seam]] = {"openai_chat": OpenAISeam, "anthropic_messages": AnthropicSeam}
_BOTH = frozenset({"model", "messages", "stream", "max_tokens", "temperature", "top_p", "top_k", "metadata"})
_HARMLESS: Mapping[DialectName, frozenset[str]] = {
    "openai_chat": _BOTH | {
        "stream_options", "max_completion_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty",
        "min_p", "logit_bias", "stop", "seed", "user", "safety_identifier", "store", "service_tier",
        "parallel_tool_calls", "reasoning_effort", "prompt_cache_key",
    },
    "anthropic_messages": _BOTH | {"system", "stop_sequences", "service_tier", "cache_control"},
}  # fmt: skip
# Members that ask for nothing in one of these forms.
_SAYS_NOTHING: Mapping[str, Sequence[object]] = {
    "n": (1,), "tool_choice": ("none", "auto"), "logprobs": (False,),
    "response_format": ({"type": "text"},), "modalities": (["text"],), "thinking": ({"type": "disabled"},),
}  # fmt: skip
_LIMITS = ("max_tokens", "max_completion_tokens")
_RANKS: Sequence[Basis] = ("none", "estimated", "received", "provider_final")  # from the least sure on

_messages = msgspec.json.Decoder(list[Raw]).decode


def seam_of(call: Call) -> type[Seam] | None:
    """For each answer to *call*, if one could be taken up in the middle; None where that would never be sound."""
    harmless = _HARMLESS.get(call.dialect, frozenset())
    if tool_members(call):
        return None
    for name, raw in call.fields.items():
        if name in harmless or name in TOOLS or bytes(raw) == b"null":
            continue
        if name not in _SAYS_NOTHING or decode_values(raw) not in _SAYS_NOTHING[name]:
            return None
    return _SEAMS.get(call.dialect)


def can_go_on(call: Call, tokens: int) -> bool:
    """Whether something may follow *tokens* of an answer to *call*, by its limit and by whose its last message is."""
    limits = [decode_values(call.fields[name]) for name in _LIMITS if name in call.fields]
    last = decode_members(_messages(call.fields["messages"])[-1])
    return all(limit is None or limit > tokens for limit in limits) and decode_values(last["role"]) != "assistant"


def continued(call: Call, text: str, tokens: int, route: Route) -> Call:
    """
    *call* with the beginning of its answer, for *route*.

    Args:
        text: What the client has heard.
        tokens: How many that were; they are taken off the limit that the call sets.
    """
    call = suited(call, route.provider)  # before anything follows the messages
    fields, messages = dict(call.fields), _messages(call.fields["messages"])
    for name in _LIMITS:
        limit = decode_values(fields[name]) if name in fields else None
        if limit is not None:
            fields[name] = Raw(b"%d" % (limit - tokens))
    begun: dict[str, object] = {"role": "assistant", "content": text.rstrip()}
    if is_native(call, route) and call.dialect == "openai_chat":
        begun["prefix"] = True  # by Mistral's reference; translated calls get it by the model's traits
    fields["messages"] = Raw(msgspec.json.encode([*messages, begun]))
    return structs.replace(call, fields=fields)


class KeptLane(Over):
    """The first part: what the client hears is kept, in case that it breaks."""

    def __init__(self, lane: Lane, seam: Seam) -> None:
        super().__init__(lane)
        self.seam = seam

    def feed(self, data: bytes) -> bytes:
        out = self._lane.feed(data)
        self.seam.hear(out)
        return out

    def end(self) -> bytes:
        out = self._lane.end()
        self.seam.hear(out)
        return out

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        return self._lane.fail(failure, receipt)

    def finish(self, receipt: Receipt) -> bytes:
        return self._lane.finish(receipt)

    def last_words(self) -> bytes:
        out = self._lane.last_words()
        self.seam.hear(out)
        return out

    def measure(self) -> tuple[Usage, Basis]:
        return self._lane.measure()

    def received_tokens(self) -> int:
        return self._lane.received_tokens()


class Begun(Struct, frozen=True):
    """The first part of an answer, which broke: what the client has heard, and what was counted."""

    seam: Seam
    usage: Usage
    basis: Basis
    response_id: str | None


class ContinuedLane(Over):
    """The second part, as the client is to hear it: more of the first.

    Args:
        echoes: Whether the provider may begin with the text that it was given.
    """

    def __init__(self, lane: Lane, begun: Begun, *, echoes: bool) -> None:
        super().__init__(lane)
        self._seam = begun.seam
        self._begun = begun
        self._seam.resume(echoes)

    def feed(self, data: bytes) -> bytes:
        return self._seam.join(self._lane.feed(data))

    def end(self) -> bytes:
        return self._seam.join(self._lane.end())

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        return self._seam.join(self._lane.fail(failure, receipt))

    def finish(self, receipt: Receipt) -> bytes:
        return self._seam.join(self._lane.finish(receipt))

    def last_words(self) -> bytes:
        return self._seam.join(self._lane.last_words())

    @property
    def response_id(self) -> str | None:
        return self._begun.response_id

    @property
    def deltas(self) -> int:
        return self._begun.usage.completion_tokens + self._lane.deltas

    def parts(self) -> tuple[Usage, Usage]:
        """What each of the two providers has counted, or we for it."""
        return self._begun.usage, self._lane.measure()[0]

    def measure(self) -> tuple[Usage, Basis]:
        """The caller's whole: its own prompt, once, and the answer of both; as sure as the less sure of the two."""
        first, (second, second_basis) = self._begun.usage, self._lane.measure()
        whole = structs.replace(
            first,
            completion_tokens=first.completion_tokens + second.completion_tokens,
            reasoning_tokens=first.reasoning_tokens + second.reasoning_tokens,
        )
        return whole, min(self._begun.basis, second_basis, key=_RANKS.index)

    def received_tokens(self) -> int:
        return self._begun.usage.completion_tokens + self._lane.received_tokens()
