"""A neutral prompt as the body of a Converse call to Amazon Bedrock.

Converse was made after Anthropic's messages: turns that alternate, blocks, results right behind their calls. What a
conversation has to be is therefore written once, by `anthropic_body_turns`, and respelled here. What Converse has no
member for goes to the model itself, in `additionalModelRequestFields`, where the model is known to take members of its
vendor's dialect there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec
from msgspec import structs

from gateway.dialects.anthropic_body import DEFAULT_MAX_TOKENS, check, write_stop
from gateway.dialects.anthropic_body_thinking import write_thinking
from gateway.dialects.anthropic_body_turns import Conversation, write_turns
from gateway.dialects.bedrock_body_blocks import Blocks, check_sources
from gateway.dialects.bedrock_body_tools import write_tools
from gateway.dialects.neutral import Message, Notes, Prompt, Target, Thinking
from gateway.dialects.openai_body_reasoning import write_reasoning
from gateway.wire.values import decode_values

OWN = "anthropic_messages"  # as `Traits.own`: members of this dialect are taken beside Converse's
_TIERS = frozenset({"default", "flex", "priority"})  # `serviceTier.type` in the API reference
_CONFIG = {"temperature": "temperature", "top_p": "topP"}
# Of `anthropic_beta` in Bedrock's guide to Claude: those that change neither body nor answer. It refuses what it does
# not know, and clients list what Anthropic's own API knows.
_BETAS = frozenset(
    {
        "context-1m-2025-08-07", "interleaved-thinking-2025-05-14", "output-128k-2025-02-19",
        "token-efficient-tools-2025-02-19",
    }
)  # fmt: skip
_BETA_HEADER = "anthropic-beta"
_STOP_SEQUENCE = "/stop_sequence"  # points into the model's own answer; Converse's does not have it


def write_body(prompt: Prompt, target: Target, notes: Notes) -> bytes:
    """
    *prompt* as *target* wants it; what became of it goes to *notes*. The model is not in it: the path names it.

    Raises:
        GatewayError: 400 for what the API cannot do and no answer may ignore.
    """
    notes.begin(prompt)
    check(prompt)
    check_sources(prompt)
    body = _OwnBody(target, notes) if target.traits.own == OWN else _CommonBody(target, notes)
    return msgspec.json.encode({name: value for name, value in body.write(prompt).items() if value})


class _Body(ABC):
    """
    The members of a body in the making.

    Attributes:
        config: `inferenceConfig`.
        output: `outputConfig`.
        own: `additionalModelRequestFields`.
    """

    takes_own = False

    def __init__(self, target: Target, notes: Notes) -> None:
        self.target = target
        self.notes = notes
        self.config: dict[str, Any] = {}
        self.output: dict[str, Any] = {}
        self.own: dict[str, Any] = {}

    def write(self, prompt: Prompt) -> dict[str, Any]:
        """All members; those that are empty are not to be sent."""
        prompt = self.prepare(prompt)
        talk = write_turns(prompt, self.notes)
        blocks = Blocks(takes_marks=self.takes_own)
        max_tokens = self.max_tokens(prompt)
        if max_tokens is not None:
            self.config["maxTokens"] = max_tokens
        self.write_sampling(prompt, talk)
        if stop := write_stop(prompt, self.notes):
            self.config["stopSequences"] = stop["stop_sequences"]
        self._write_format(prompt)
        self._write_betas(prompt)
        body = {
            "system": blocks.system(talk.system),
            "messages": blocks.messages(talk.messages),
            "inferenceConfig": self.config,
            "toolConfig": write_tools(prompt, talk.called, self.own if self.takes_own else None, blocks, self.notes),
            "outputConfig": self.output,
            "additionalModelRequestFields": self.own,
            "additionalModelResponseFieldPaths": [_STOP_SEQUENCE] if self.takes_own and prompt.stop else [],
        }
        return body | self._rest(prompt, blocks)

    def prepare(self, prompt: Prompt) -> Prompt:
        """*prompt* without what the model would refuse."""
        return prompt

    def max_tokens(self, prompt: Prompt) -> int | None:
        """
        What was asked for, never above the model's limit.

        Where nothing was, nothing is sent: the default is the model's maximum (reference, `InferenceConfiguration`).
        Hosts of some models add a number to the prompt's, and refuse what goes beyond the window.
        """
        asked, limit = prompt.max_tokens, self.target.max_output_tokens
        if asked is None or limit is None or asked <= limit:
            return asked
        self.notes.translate(prompt.names.get("max_tokens", "max_tokens"))
        return limit

    @abstractmethod
    def write_sampling(self, prompt: Prompt, talk: Conversation) -> None:
        """How to choose words, and how much to think before."""

    def _write_format(self, prompt: Prompt) -> None:
        form = prompt.response_format
        if form is None or form.schema is None:
            return
        self.notes.translate(prompt.names.get("response_format", "response_format"))
        schema: dict[str, Any] = {"schema": msgspec.json.format(bytes(form.schema), indent=-1).decode()}
        if form.name is not None:
            schema["name"] = form.name
        if form.description is not None:
            schema["description"] = form.description
        self.output["textFormat"] = {"type": "json_schema", "structure": {"jsonSchema": schema}}

    def _write_betas(self, prompt: Prompt) -> None:
        """Each of those that the model may have, once; that others were left out is noted."""
        wanted = dict.fromkeys(prompt.betas)
        kept = [beta for beta in wanted if beta in _BETAS] if self.takes_own else []
        if kept:
            self.own["anthropic_beta"] = kept
        if len(kept) < len(wanted):
            self.notes.drop(_BETA_HEADER)

    def _rest(self, prompt: Prompt, blocks: Blocks) -> dict[str, Any]:
        """Members without a neutral form: the tier is known here, others are noted, and so is the user."""
        members: dict[str, Any] = {}
        if prompt.user:
            self.notes.drop(prompt.names.get("user", "user"))
        for name, raw in prompt.others.items():
            value = decode_values(raw) if name == "service_tier" else None
            if isinstance(value, str) and value in _TIERS:
                members["serviceTier"] = {"type": value}
                self.notes.translate(name)
            else:
                self.notes.drop(name)
        if blocks.dropped_marks:
            self.notes.drop("cache_control")
        return members


class _OwnBody(_Body):
    """For a model that has the rules of `anthropic_body`, and takes its members beside Converse's."""

    takes_own = True

    def write_sampling(self, prompt: Prompt, talk: Conversation) -> None:
        max_tokens = self.config.get("maxTokens") or self.target.max_output_tokens or DEFAULT_MAX_TOKENS
        members, effort = write_thinking(prompt, self.target, talk, max_tokens, self.notes)
        if "maxTokens" not in self.config and "budget_tokens" in members.get("thinking", {}):  # to be below it
            self.config["maxTokens"] = max_tokens
            self.notes.translate("max_tokens")
        self.config |= {_CONFIG[name]: members.pop(name) for name in _CONFIG if name in members}
        self.own |= members
        if effort is not None:
            self.output["effort"] = effort


class _CommonBody(_Body):
    """For any other model."""

    def prepare(self, prompt: Prompt) -> Prompt:
        """Without earlier reasoning: such models refuse that of others, and do without their own."""
        messages = tuple(self._unthinking(message) for message in prompt.messages)
        return structs.replace(prompt, messages=messages)

    def _unthinking(self, message: Message) -> Message:
        kept = [at for at, part in enumerate(message.parts) if not isinstance(part, Thinking)]
        if len(kept) == len(message.parts):
            return message
        for at in set(range(len(message.parts))).difference(kept):
            self.notes.drop(message.place_of(at))
        parts, places = (message.parts[at] for at in kept), (message.place_of(at) for at in kept)
        return structs.replace(message, parts=tuple(parts), places=tuple(places))

    def write_sampling(self, prompt: Prompt, talk: Conversation) -> None:
        for member, raw in prompt.sampling.items():
            name = prompt.names.get(member, member)
            if member not in _CONFIG:
                self.notes.drop(name)
                continue
            is_above = float(bytes(raw)) > 1  # the limit of both in the API reference
            self.config[_CONFIG[member]] = 1 if is_above else raw
            if is_above:
                self.notes.translate(name)
        write_reasoning(prompt, self.target.traits, self._put, self.notes)

    def _put(self, member: str, value: object, client_name: str) -> None:
        self.own[member] = value
        if member != client_name:
            self.notes.translate(client_name)
