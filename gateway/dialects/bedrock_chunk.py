"""Events and answers of Bedrock's Converse, typed as far as their meaning is known here.

Members are those of the API reference, "ConverseStream" and "Converse" of Amazon Bedrock Runtime. A stream's event has
its name in the message's headers; Bedrock pads payloads with a member `p` of changing length, which says nothing.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from gateway.dialects.failures import ABSENT


class ReasoningText(Struct, gc=False):
    text: str | None = None
    signature: str | None = None


class Reasoning(Struct, gc=False, rename="camel"):
    """In a delta `text`, `signature` or `redactedContent`; in a whole block `reasoningText` or `redactedContent`."""

    text: str | None = None
    signature: str | None = None
    reasoning_text: ReasoningText | None = None
    redacted_content: str | None = None


class ToolInput(Struct, gc=False):
    input: str | None = None


class ToolUse(Struct, gc=False, rename="camel"):
    """`type` is there for tools that the provider runs by itself."""

    tool_use_id: str | None = None
    name: str | None = None
    type: str | None = None
    input: Raw = ABSENT


class Start(Struct, gc=False, rename="camel"):
    tool_use: ToolUse | None = None
    tool_result: Raw = ABSENT
    image: Raw = ABSENT


class Delta(Struct, gc=False, rename="camel"):
    text: str | None = None
    tool_use: ToolInput | None = None
    reasoning_content: Reasoning | None = None


class StopFields(Struct, gc=False):
    """What of `additionalModelResponseFields` is asked for."""

    stop_sequence: str | None = None


class StreamEvent(Struct, gc=False, rename="camel"):
    """The members of every event; each has some of them."""

    content_block_index: int = 0
    start: Start | None = None
    delta: Delta | None = None
    stop_reason: str | None = None
    additional_model_response_fields: StopFields | None = None
    usage: Raw = ABSENT


class CitedText(Struct, gc=False):
    text: str | None = None


class CitedTexts(Struct, gc=False):
    content: list[CitedText] | None = None


class Block(Struct, gc=False, rename="camel"):
    """A content block of a whole answer."""

    text: str | None = None
    tool_use: ToolUse | None = None
    reasoning_content: Reasoning | None = None
    citations_content: CitedTexts | None = None


class Message(Struct):
    content: list[Block]


class Output(Struct):
    message: Message


class Answer(Struct, rename="camel"):
    """A whole answer."""

    output: Output
    stop_reason: str
    usage: Raw = ABSENT
    additional_model_response_fields: StopFields | None = None


read_event = msgspec.json.Decoder(StreamEvent).decode
read_whole = msgspec.json.Decoder(Answer).decode
