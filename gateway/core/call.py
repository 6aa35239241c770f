"""What the client asked, as sent: bytes and a handful of parsed facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Raw, Struct, structs

from gateway.core.catalog import ClientDialectName, Provider, Signer
from gateway.core.held import Held

Task = Literal["answer", "count"]
"""Whether the prompt is to be answered, or only to be counted."""

TOOLS = ("tools", "functions")  # the second is what OpenAI called the first before


class CallOptions(Struct, frozen=True, gc=False):
    """The gateway's own request headers, read.

    Attributes:
        strict_params: The call is to be refused where a provider cannot take all of it.
    """

    strip_extension: bool = False
    strict_params: bool = False
    session_id: str | None = None
    agent_id: str | None = None


class Call(Struct, frozen=True):
    """One request for a completion, or for the count of its prompt.

    Attributes:
        dialect: The language of the endpoint it came in by.
        fields: Top-level members of the body, values untouched, in the client's order.
        slug: The model asked for, as the client spelled it.
        stream: Whether the answer is to be a stream.
        forward_headers: Allow-listed client headers that the provider should see (`anthropic-beta` and the like).
        inlined: The member `messages` of a call with pictures by URL, with the pictures themselves in their places, for
            providers that do not fetch them; see `Provider.fetches_images`.
        held: What was taken out of `fields` and `inlined`, and has to be put back into what is sent.
        metadata: The caller's own words on the call, for its trace: OpenAI's member of the name, cleaned.
    """

    dialect: ClientDialectName
    fields: Mapping[str, Raw]
    slug: str
    stream: bool
    options: CallOptions
    user: str | None = None
    forward_headers: tuple[tuple[str, str], ...] = ()
    inlined: Raw | None = None
    held: Held | None = None
    task: Task = "answer"
    metadata: Mapping[str, str] = {}


def tool_members(call: Call) -> tuple[str, ...]:
    """The members by which *call* has tools; none where they are null or an empty list, however it is spaced."""
    fields = call.fields
    return tuple(name for name in TOOLS if name in fields and not is_nothing(fields[name]))


def is_nothing(raw: Raw) -> bool:
    """Whether *raw* is null or an empty list."""
    value = bytes(raw)
    return value == b"null" or (value[:1] == b"[" and not value[1:-1].strip())


def suited(call: Call, provider: Provider) -> Call:
    """*call* as *provider* takes it: with pictures in the places of URLs that it would not fetch."""
    if call.inlined is None or provider.fetches_images:
        return call
    return structs.replace(call, fields={**call.fields, "messages": call.inlined}, inlined=None)


def readable(call: Call) -> Call:
    """*call* with nothing set aside where that may be a text: a dialect may want it in base64, which a token is not."""
    if call.held is None or b"text/plain" not in bytes(call.fields["messages"]):
        return call
    fields = {name: Raw(call.held.fill(bytes(raw))) for name, raw in call.fields.items()}
    return structs.replace(call, fields=fields, held=None)


class Params(Struct, frozen=True, gc=False):
    """
    What of a call its provider got in another form, and what not at all, in the client's words.

    Attributes:
        tools: Names of tools that the provider was given, and the client's for them; None for one that the client has
            not: the gateway's own, whose arguments are the answer.
    """

    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    tools: Mapping[str, str | None] = {}


ALL_PARAMS = Params()  # a provider that got the call as it was


class UpstreamRequest(Struct, frozen=True, gc=False):
    """A request to a provider, ready to be sent. Built purely; `headers` hold the credential and are not for logs.

    Attributes:
        fresh: Over a new connection: one from the pool has just turned out to be dead.
        params: What became of the call on its way into `body`.
        signer: Has to add its headers when the request is sent.
        signature: Those headers: of this request alone, while `headers` are the same for many.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    fresh: bool = False
    params: Params = ALL_PARAMS
    signer: Signer | None = None
    signature: tuple[tuple[str, str], ...] = ()

    def signed(self, body_sha256: str, epoch_s: float) -> UpstreamRequest:
        """What is sent at *epoch_s* by the wall clock, where a signer is to be asked for the rest of its headers."""
        assert self.signer is not None
        signature = self.signer(self.url, self.headers, body_sha256, epoch_s)
        return structs.replace(self, signature=signature, signer=None)

    def __repr__(self) -> str:
        return f"UpstreamRequest(url={self.url!r}, {len(self.body)} bytes)"
