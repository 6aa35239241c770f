"""What Bedrock's Converse answers, read into neutral events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.core.errors import UpstreamFailed
from gateway.dialects.answer import read_answer
from gateway.dialects.bedrock_chunk import Answer, Block, Delta, Reasoning, StreamEvent, ToolUse, read_event, read_whole
from gateway.dialects.bedrock_ending import Ending, check
from gateway.dialects.bedrock_failures import fault_failure
from gateway.dialects.failures import ABSENT, malformed
from gateway.dialects.lane import read_json
from gateway.dialects.neutral import AnswerEvent, Argued, Begin, Called, Said, Thought
from gateway.dialects.reading import AnswerState
from gateway.wire.eventstream import Fault
from gateway.wire.sse import Event
from gateway.wire.values import decode_values

MAX_PLAIN_BYTES = 4096  # content events have some 150; of that length none can have too many elements
MAX_OPEN_BLOCKS = 32  # Bedrock has one open at a time
# Of one answer's signatures and ciphertexts, which are told at the end of their blocks: as long as an event may be by
# default. The signature of 60,000 tokens of thinking has some 350 KB.
MAX_HELD_CHARS = 1 << 20
_DELTA = b"contentBlockDelta"


class _Open:
    """A block that has begun. `slot` is that of a tool's call, None for text and reasoning."""

    __slots__ = ("is_foreign", "redacted", "signature", "slot")

    def __init__(self, slot: int | None, *, is_foreign: bool) -> None:
        self.slot = slot
        self.is_foreign = is_foreign
        self.signature: list[str] = []
        self.redacted: list[str] = []


class BedrockReader(AnswerState):
    """Reads one answer, a stream by `take` and `end` or a JSON body by `whole`."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        self._open: dict[int, _Open] = {}
        self._held_chars = 0
        self._calls = 0  # so far
        self._ending = Ending()

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """What *event* says. Raises UpstreamFailed for an exception, or for nothing intelligible."""
        if self.ended:
            return ()
        if isinstance(event, Fault):
            raise UpstreamFailed(fault_failure(event))
        if event.name == _DELTA and not self.complete and len(event.data) <= MAX_PLAIN_BYTES:
            try:
                delta = read_event(event.data)
            except (msgspec.DecodeError, RecursionError):
                pass  # it may be mended
            else:
                self.progress += 1
                return self._take_delta(delta)
        handler = _HANDLERS.get(event.name)
        if handler is None or (self.complete and event.name != b"metadata"):
            self._remark("unknown_event" if handler is None else "after_stop")
            return ()
        read = read_json(event.data, read_event, read_event)
        if read is None:
            raise UpstreamFailed(malformed(event.data.decode("utf-8", "replace")))
        self.progress += 1
        return handler(self, read[0])

    def close(self) -> None:
        """See `Reader`: here the end of a body proves nothing."""

    def end(self) -> Sequence[AnswerEvent]:
        """How the model stopped, and the last count."""
        said = self._ending.last_words(self._calls)
        self.note = self._ending.note or self.note  # how it ended says more than an oddity on the way
        return said

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """An answer of Converse, last words included. Raises UpstreamFailed for anything else."""
        members, _ = read_answer(body)  # for its bounds, and to mend what can be
        try:
            answer = read_whole(msgspec.json.encode(members))
        except msgspec.DecodeError as exc:
            raise UpstreamFailed(malformed(f"no answer: {exc}")) from None
        check(answer.stop_reason)
        said = self._begin()
        for index, block in enumerate(answer.output.message.content):
            said += self._whole_block(index, block)
            said += self._close(index)
        self._stop(answer)
        self._ending.count(answer.usage)
        self.ended = True
        return [*said, *self.end()]

    # -- the parts of an answer --

    def _begin(self) -> list[AnswerEvent]:
        """Converse gives its answers no ids."""
        if self._has_begun:
            return []
        self._has_begun = True
        return [Begin()]

    def _start_block(self, index: int, *, slot: int | None = None, is_foreign: bool = False) -> _Open:
        if len(self._open) >= MAX_OPEN_BLOCKS:
            raise UpstreamFailed(malformed("too many open content blocks"))
        self._open[index] = _Open(slot, is_foreign=is_foreign)
        return self._open[index]

    def _call(self, index: int, tool: ToolUse) -> list[AnswerEvent]:
        """The model begins to call *tool*; one that the provider runs by itself is none of the client's."""
        if tool.type is not None:
            self._start_block(index, is_foreign=True)
            self._remark("foreign_block")
            return []
        if not tool.tool_use_id or not tool.name:
            raise UpstreamFailed(malformed("toolUse without id or name"))
        self._start_block(index, slot=self._calls)
        self._calls += 1
        return [Called(self._calls - 1, tool.tool_use_id, tool.name)]

    def _reason(self, block: _Open, said: Reasoning) -> list[AnswerEvent]:
        for held, piece in ((block.signature, said.signature), (block.redacted, said.redacted_content)):
            if piece:
                held.append(piece)
                self._held_chars += len(piece)
        if self._held_chars > MAX_HELD_CHARS:
            raise UpstreamFailed(malformed("more signatures than an answer can have"))
        return [Thought(said.text)] if said.text else []

    def _close(self, index: int) -> list[AnswerEvent]:
        block = self._open.pop(index, None)
        if block is None:
            return []
        said: list[AnswerEvent] = [Thought(signature="".join(block.signature))] if block.signature else []
        return [*said, Thought(redacted="".join(block.redacted))] if block.redacted else said

    def _stop(self, said: StreamEvent | Answer) -> None:
        self._ending.stop(said.stop_reason, said.additional_model_response_fields)
        self.complete = True

    def _whole_block(self, index: int, block: Block) -> list[AnswerEvent]:
        said: list[AnswerEvent] = []
        if block.tool_use is not None:
            said += self._call(index, block.tool_use)
            arguments = decode_values(block.tool_use.input)
            if said and arguments and isinstance(arguments, dict):
                text = msgspec.json.format(bytes(block.tool_use.input), indent=-1).decode()
                said.append(Argued(self._calls - 1, text))
            return said
        opened = self._start_block(index)
        if (reasoning := block.reasoning_content) is not None:
            if (whole := reasoning.reasoning_text) is not None:
                reasoning.text, reasoning.signature = whole.text, whole.signature
            return self._reason(opened, reasoning)
        if block.citations_content is not None:
            self._remark("citations")
            return [Said(part.text) for part in block.citations_content.content or () if part.text]
        if block.text is None:
            self._remark("foreign_block")
        return [Said(block.text)] if block.text else []

    # -- the events of a stream --

    def _take_start(self, event: StreamEvent) -> list[AnswerEvent]:
        return self._begin()

    def _take_block_start(self, event: StreamEvent) -> list[AnswerEvent]:
        index, start = event.content_block_index, event.start
        said = self._begin() + self._close(index)  # it cannot have two starts
        if start is None:
            return said
        if start.tool_use is not None:
            return said + self._call(index, start.tool_use)
        if start.tool_result is not ABSENT or start.image is not ABSENT:
            self._start_block(index, is_foreign=True)
            self._remark("foreign_block")
        return said

    def _take_delta(self, event: StreamEvent) -> list[AnswerEvent]:
        index, said = event.content_block_index, self._begin()
        block = self._open.get(index)
        if block is None:  # text and reasoning have no start
            block = self._start_block(index)
        return said if block.is_foreign or event.delta is None else said + self._say(block, event.delta)

    def _say(self, block: _Open, delta: Delta) -> list[AnswerEvent]:
        if delta.text is not None and block.slot is None:
            return [Said(delta.text)] if delta.text else []
        if delta.reasoning_content is not None and block.slot is None:
            return self._reason(block, delta.reasoning_content)
        if delta.tool_use is not None and block.slot is not None:
            return [Argued(block.slot, delta.tool_use.input)] if delta.tool_use.input else []
        self._remark("stray_delta")
        return []

    def _take_block_stop(self, event: StreamEvent) -> list[AnswerEvent]:
        return self._close(event.content_block_index)

    def _take_stop(self, event: StreamEvent) -> list[AnswerEvent]:
        check(event.stop_reason)
        said = self._begin()
        for index in sorted(self._open):
            said += self._close(index)
        self._stop(event)
        return said

    def _take_metadata(self, event: StreamEvent) -> list[AnswerEvent]:
        """The usage: the last event, behind the one that tells how the model stopped."""
        self._ending.count(event.usage)
        self.ended = self.complete
        return self._ending.counted()


_HANDLERS: dict[bytes, Callable[[BedrockReader, StreamEvent], Sequence[AnswerEvent]]] = {
    b"messageStart": BedrockReader._take_start,
    b"contentBlockStart": BedrockReader._take_block_start,
    _DELTA: BedrockReader._take_delta,
    b"contentBlockStop": BedrockReader._take_block_stop,
    b"messageStop": BedrockReader._take_stop,
    b"metadata": BedrockReader._take_metadata,
}
