"""OpenAI chat completions: the client's request, the request to a provider of the same dialect, the JSON answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from gateway.core.call import Call, CallOptions
from gateway.core.errors import UpstreamFailed
from gateway.core.receipt import Receipt, extension
from gateway.core.usage import Basis, Usage
from gateway.dialects.answer import read_answer
from gateway.dialects.base import ClientDialect, Journey, fixed_path
from gateway.dialects.called import Called, openai_calls
from gateway.dialects.failures import NOTHING, in_band_failure, malformed, read_failure
from gateway.dialects.neutral import Notes, Target
from gateway.dialects.openai_body import MAX_STOP, write_body
from gateway.dialects.openai_chunk import FAILED_REASONS
from gateway.dialects.openai_chunks import OpenAIWriter
from gateway.dialects.openai_editing import KNOWN, screen_choices
from gateway.dialects.openai_events import OpenAIReader
from gateway.dialects.openai_native import within_limit, without_nothing
from gateway.dialects.openai_pictures import PICTURES
from gateway.dialects.openai_prompt import read_prompt
from gateway.dialects.openai_stream import HEARTBEAT, OpenAIChatLane
from gateway.dialects.openai_usage import UsageReader, usage_object
from gateway.dialects.prompt_tokens import prompt_tokens
from gateway.dialects.tokens import Tally, as_text
from gateway.dialects.unlisted import screen_others
from gateway.dialects.validate import Metadata, read_facts, read_id, read_members, read_metadata, read_user, refuse
from gateway.guards.screen import Screen
from gateway.wire.body import fits, replace_members
from gateway.wire.values import decode_members

_Tokens = Annotated[int, Meta(ge=1, le=10_000_000)]
_Penalty = Annotated[float, Meta(ge=-2, le=2)]


class _Message(Struct, gc=False):
    role: Annotated[str, Meta(min_length=1)]


class _Facts(Struct, gc=False):
    model: Annotated[str, Meta(min_length=1, max_length=256)]
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: dict[str, Raw] | None = None
    n: Annotated[int, Meta(ge=1, le=128)] | None = None
    max_tokens: _Tokens | None = None
    max_completion_tokens: _Tokens | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: _Penalty | None = None
    frequency_penalty: _Penalty | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    tools: list[dict[str, Raw]] | None = None
    tool_choice: str | dict[str, Raw] | None = None
    response_format: dict[str, Raw] | None = None
    user: str | None = None
    metadata: Metadata | None = None


_facts = msgspec.json.Decoder(_Facts)
_NOT_PASSED = ("error", "_anoman")  # an error that is null, since clients look for the key; a gateway's behind us
_INCLUDE_USAGE = {"include_usage": True}


def read_call(body: bytes, options: CallOptions, forward_headers: tuple[tuple[str, str], ...]) -> Call:
    """*body* as a `Call`. Raises GatewayError (400) naming the field at fault."""
    return call_of(read_members(body), body, options, forward_headers)


def call_of(
    fields: Mapping[str, Raw], body: bytes, options: CallOptions, forward_headers: tuple[tuple[str, str], ...]
) -> Call:
    """The `Call` of *body*, whose members *fields* have been checked. Raises GatewayError (400) naming the field."""
    facts = read_facts(_facts, body)
    if isinstance(facts.stop, list) and len(facts.stop) > MAX_STOP:
        raise refuse("stop", f"stop may have at most {MAX_STOP} sequences.")
    return Call(
        dialect="openai_chat",
        fields=fields,
        slug=facts.model,
        stream=bool(facts.stream),
        options=options,
        user=read_user(facts.user),
        forward_headers=forward_headers,
        metadata=read_metadata(facts.metadata),
    )


def tidy(fields: Mapping[str, Raw], target: Target, notes: Notes) -> Mapping[str, Raw]:
    """*fields* without empty lists of tools or calls, and with no higher limit than the model's."""
    return within_limit(without_nothing(fields), target.max_output_tokens, notes)


def upstream_body(fields: Mapping[str, Raw], target: Target) -> bytes:
    """The client's body with the provider's model name; a stream is asked for its usage, unless it tells it unasked."""
    changes: dict[str, object] = {"model": target.model}
    if target.stream:
        asked = fields.get("stream_options")
        asked_members = decode_members(asked) if asked is not None and bytes(asked) != b"null" else {}
        changes["stream_options"] = {**asked_members, **_INCLUDE_USAGE}
    return replace_members(fields, changes, drop=target.omits)


class OpenAICompletion:
    """A `chat.completion` body of a provider."""

    def __init__(self, members: dict[str, Raw], root: dict[str, Any], journey: Journey) -> None:
        self._members = members
        self._choices: list[Any] = root["choices"]
        self._journey = journey
        self._is_edited = False
        self._others: dict[str, object] = {}  # members that leave as others
        self._own_id = f"chatcmpl-{journey.request_id}"  # for a provider that gives none
        self.response_id = read_id(root.get("id", self._own_id))
        self._reader = UsageReader()
        if usage := root.get("usage"):
            self._reader.take_value(usage)
        self.note: str | None = "usage_odd" if self._reader.odd else None
        self.usage, self.basis = self._measure()

    def _measure(self) -> tuple[Usage, Basis]:
        reader = self._reader
        if reader.whole:
            return reader.usage, "provider_final"
        tally = Tally(self._journey.family.factor)
        _tell(self._choices, tally)
        prompt = prompt_tokens(self._journey.call, self._journey.family)
        return reader.filled(prompt, tally.tokens()), "estimated"

    def pass_through(self, screen: Screen) -> None:
        """As in `Completion`."""
        self._is_edited = screen_choices(self._choices, screen) and screen.edits
        self._others = screen_others(self._members, KNOWN, screen)
        if (self._is_edited and not fits(self._choices)) or not fits(self._others):
            raise UpstreamFailed(malformed("a number that cannot be written again"))

    def calls(self) -> Iterator[Called]:
        """As in `Completion`."""
        return openai_calls(self._choices)

    def render(self, receipt: Receipt) -> bytes:
        """The client's body."""
        members, journey = self._members, self._journey
        changes: dict[str, object] = {
            **self._others,
            "model": journey.call.slug,
            "usage": usage_object(receipt.usage, self._reader.raw),
        }
        if "id" not in members:
            changes["id"] = self._own_id
        if "object" not in members:
            changes["object"] = "chat.completion"
        if "created" not in members:
            changes["created"] = journey.created_epoch_s
        if (_fill_arguments(self._choices) and fits(self._choices)) or self._is_edited:
            changes["choices"] = self._choices
        if not journey.call.options.strip_extension:
            changes["_anoman"] = extension(receipt)
        members = {name: value for name, value in members.items() if name not in _NOT_PASSED}
        return replace_members(members, changes)


def read_completion(body: bytes, journey: Journey) -> OpenAICompletion:
    """*body* as a completion. Raises UpstreamFailed for an error object or anything that has no choices."""
    members, root = read_answer(body)
    choices, error = root.get("choices"), members.get("error")
    if error is not None and bytes(error) not in NOTHING:
        raise UpstreamFailed(in_band_failure(body))
    if not isinstance(choices, list) or not choices:
        raise UpstreamFailed(malformed("no choices in the answer"))
    for choice in choices:
        if not isinstance(choice, dict) or choice.get("error") or choice.get("finish_reason") in FAILED_REASONS:
            raise UpstreamFailed(in_band_failure(body))
        if not isinstance(choice.get("message"), dict) or not isinstance(choice.get("finish_reason"), str):
            raise UpstreamFailed(malformed("a choice without message or finish_reason"))
    return OpenAICompletion(members, root, journey)


def _tell(choices: Any, tally: Tally) -> None:
    """Add the text of every choice to *tally*."""
    for choice in choices:
        message = choice.get("message") if isinstance(choice, dict) else None
        if isinstance(message, dict):
            tally.add("".join(v for k, v in message.items() if k != "role" and isinstance(v, str)))
            if message.get("tool_calls"):
                tally.add(as_text(message["tool_calls"]))


def _fill_arguments(choices: list[Any]) -> bool:
    """Put `{}` for the arguments of every tool call that has none, as "" is not JSON; whether there was one."""
    filled = False
    for choice in choices:
        message = choice.get("message") if isinstance(choice, dict) else None
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict) and not function.get("arguments"):
                function["arguments"] = "{}"
                filled = True
    return filled


OPENAI_CHAT = ClientDialect(
    name="openai_chat",
    path="/v1/chat/completions",
    upstream_path=fixed_path("/chat/completions"),
    heartbeat=HEARTBEAT,
    default_headers=(),
    read_call=read_call,
    tidy=tidy,
    upstream_body=upstream_body,
    open_lane=OpenAIChatLane,
    read_completion=read_completion,
    read_failure=lambda status, headers, body, now: read_failure("openai_chat", status, headers, body, now),
    read_prompt=read_prompt,
    write_body=write_body,
    open_reader=lambda asked: OpenAIReader(),
    open_writer=OpenAIWriter,
    pictures=PICTURES,
)
