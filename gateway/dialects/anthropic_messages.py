"""Anthropic messages: the client's request, the request to a provider of the same dialect, the JSON answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from gateway.core.call import Call, CallOptions
from gateway.core.errors import UpstreamFailed
from gateway.core.receipt import Receipt, extension
from gateway.core.usage import Basis, Usage
from gateway.dialects.answer import read_answer
from gateway.dialects.anthropic_body import write_body
from gateway.dialects.anthropic_count import COUNTING, PromptFacts
from gateway.dialects.anthropic_editing import KNOWN, screen_content
from gateway.dialects.anthropic_events import AnthropicReader
from gateway.dialects.anthropic_frames import AnthropicWriter
from gateway.dialects.anthropic_pictures import PICTURES
from gateway.dialects.anthropic_prompt import read_prompt
from gateway.dialects.anthropic_stream import HEARTBEAT, AnthropicLane
from gateway.dialects.anthropic_usage import UsageReader, usage_object
from gateway.dialects.base import ClientDialect, Journey, fixed_path
from gateway.dialects.called import Called, anthropic_calls
from gateway.dialects.failures import in_band_failure, malformed, read_failure
from gateway.dialects.neutral import Target
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.tokens import Tally, as_text
from gateway.dialects.unlisted import screen_others
from gateway.dialects.validate import check_metadata, read_facts, read_id, read_members, read_user
from gateway.guards.screen import Screen
from gateway.wire.body import fits, replace_members
from gateway.wire.values import decode_values

VERSION = "2023-06-01"


class _Facts(PromptFacts, gc=False, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1, le=10_000_000)]
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop_sequences: list[str] | None = None
    metadata: dict[str, Raw] | None = None


_facts = msgspec.json.Decoder(_Facts)


def read_call(body: bytes, options: CallOptions, forward_headers: tuple[tuple[str, str], ...]) -> Call:
    """*body* as a `Call`. Raises GatewayError (400) naming the field at fault."""
    fields = read_members(body)
    facts = read_facts(_facts, body)
    check_metadata(facts.metadata)
    user = (facts.metadata or {}).get("user_id")
    return Call(
        dialect="anthropic_messages",
        fields=fields,
        slug=facts.model,
        stream=bool(facts.stream),
        options=options,
        user=read_user(decode_values(user)) if user is not None else None,
        forward_headers=forward_headers,
    )


def upstream_body(fields: Mapping[str, Raw], target: Target) -> bytes:
    """The client's body with the provider's model name."""
    return replace_members(fields, {"model": target.model})


class AnthropicCompletion:
    """A `message` body of a provider."""

    def __init__(self, members: dict[str, Raw], content: list[Any], journey: Journey) -> None:
        self._members = members
        self._journey = journey
        self._edited: list[Any] | None = None  # the content, where it leaves as another
        self._others: dict[str, object] = {}  # members besides it that do
        self.response_id = read_id(decode_values(members["id"])) if "id" in members else None
        self._reader = UsageReader()
        usage = members.get("usage")
        self._reader.take(decode_values(usage) if usage is not None else None)
        self.note: str | None = "usage_odd" if self._reader.odd else None
        self.usage, self.basis = self._measure(content)

    def _measure(self, content: list[Any]) -> tuple[Usage, Basis]:
        reader = self._reader
        if reader.whole:
            return reader.usage(0), "provider_final"
        tally = Tally(self._journey.family.factor)
        for block in content:
            if isinstance(block, dict):
                tally.add("".join(_words(block.get(name)) for name in ("text", "thinking", "input")))
        prompt = 0 if reader.has_prompt else prompt_tokens(self._journey.call, self._journey.family)
        return reader.usage(prompt, reader.counts.get("output_tokens", tally.tokens())), "estimated"

    def pass_through(self, screen: Screen) -> None:
        """As in `Completion`."""
        content = decode_values(self._members["content"])
        if screen_content(content, screen) and screen.edits:
            if not fits(content):
                raise UpstreamFailed(malformed("a number that cannot be written again"))
            self._edited = content
        self._others = screen_others(self._members, KNOWN, screen)
        if not fits(self._others):
            raise UpstreamFailed(malformed("a number that cannot be written again"))

    def calls(self) -> Iterator[Called]:
        """As in `Completion`."""
        said = self._members["content"] if self._edited is None else Raw(msgspec.json.encode(self._edited))
        return anthropic_calls(said)

    def render(self, receipt: Receipt) -> bytes:
        """The client's body."""
        changes: dict[str, object] = {
            **self._others,
            "model": self._journey.call.slug,
            "usage": usage_object(receipt.usage, self._reader.raw),
        }
        if self._edited is not None:
            changes["content"] = self._edited
        if not self._journey.call.options.strip_extension:
            changes["_anoman"] = extension(receipt)
        members = {name: value for name, value in self._members.items() if name != "_anoman"}  # of a gateway behind us
        return replace_members(members, changes)


def read_completion(body: bytes, journey: Journey) -> AnthropicCompletion:
    """*body* as a message. Raises UpstreamFailed for an error object or anything that has no content."""
    members, root = read_answer(body)
    content = root.get("content")
    if root.get("type") == "error" or root.get("error"):
        raise UpstreamFailed(in_band_failure(body))
    if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
        raise UpstreamFailed(malformed("no content in the answer"))
    if not isinstance(root.get("stop_reason"), str):
        raise UpstreamFailed(malformed("no stop_reason in the answer"))
    return AnthropicCompletion(members, content, journey)


def _words(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return as_text(value)


ANTHROPIC_MESSAGES = ClientDialect(
    name="anthropic_messages",
    path="/anthropic/v1/messages",
    upstream_path=fixed_path("/v1/messages"),
    heartbeat=HEARTBEAT,
    default_headers=(("anthropic-version", VERSION),),
    read_call=read_call,
    tidy=lambda fields, target, notes: fields,
    upstream_body=upstream_body,
    open_lane=AnthropicLane,
    read_completion=read_completion,
    read_failure=lambda status, headers, body, now: read_failure("anthropic_messages", status, headers, body, now),
    read_prompt=read_prompt,
    write_body=write_body,
    open_reader=lambda asked: AnthropicReader(),
    open_writer=AnthropicWriter,
    pictures=PICTURES,
    counting=COUNTING,
    tool_names=re.compile(r"[a-zA-Z0-9_-]{1,128}"),  # the API reference, `tools[].name`
)
