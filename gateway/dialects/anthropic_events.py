"""What a provider of Anthropic's dialect answers, read into neutral events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.dialects.answer import read_answer
from gateway.dialects.anthropic_blocks import PROSE, TOOL, Foreign, Held, OpenBlock, Prose, Tool
from gateway.dialects.anthropic_ending import Ending
from gateway.dialects.anthropic_event import Block, Delta, StreamEvent, leniently, read_block, read_event
from gateway.dialects.failures import ABSENT, NOTHING, in_band_failure, malformed
from gateway.dialects.neutral import AnswerEvent, Begin
from gateway.dialects.reading import AnswerState
from gateway.wire.sse import Event
from gateway.wire.values import decode_values

MAX_OPEN_BLOCKS = 32  # Anthropic has one open at a time, others one for each call; what they keep has its own bound

_read_list = msgspec.json.Decoder(list[Raw]).decode


class AnthropicReader(AnswerState):
    """Reads one answer, a stream by `take` and `end` or a JSON body by `whole`."""

    def __init__(self) -> None:
        super().__init__()
        self._has_begun = False
        self._open: dict[int, OpenBlock] = {}
        self._held = Held()
        self._calls = 0  # so far
        self._ending = Ending()

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """What *event* says. Raises UpstreamFailed for an error, or for nothing intelligible."""
        if self.ended:
            return ()
        read = read_event(event.data)
        if read is None:
            raise UpstreamFailed(malformed(event.data.decode("utf-8", "replace")))
        parsed, payload = read
        kind = parsed.type or event.name.decode("ascii", "replace")
        has_error = parsed.error is not ABSENT and bytes(parsed.error) not in NOTHING
        if has_error or kind == "error" or event.name == b"error":
            raise UpstreamFailed(in_band_failure(payload))
        handler = _HANDLERS.get(kind)
        if handler is None:
            self._remark("unknown_event")
            return ()
        self.progress += kind != "ping"
        return handler(self, parsed)

    def close(self) -> None:
        """See `Reader`: here the end of a body proves nothing."""

    def end(self) -> Sequence[AnswerEvent]:
        """How the model stopped, and the last count."""
        said = self._ending.last_words(self._calls)
        self.note = self._ending.note or self.note  # how it ended says more than an oddity on the way
        return said

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """A `message`, last words included. Raises UpstreamFailed for an error or anything else."""
        members, root = read_answer(body)
        if root.get("type") == "error" or root.get("error"):
            raise UpstreamFailed(in_band_failure(body))
        content = root.get("content")
        if not isinstance(content, list) or not all(isinstance(block, dict) for block in content):
            raise UpstreamFailed(malformed("no content in the answer"))
        if not isinstance(root.get("stop_reason"), str):
            raise UpstreamFailed(malformed("no stop_reason in the answer"))
        self._ending.count(root.get("usage"))
        said = self._begin(root.get("id"))
        for index, raw in enumerate(_read_list(members["content"])):
            said += self._open_block(index, read_block(raw))
            said += self._close_block(index)
        self._ending.stop(leniently(Delta, members))
        self.complete = self.ended = True
        return [*said, *self.end()]

    # -- the parts of an answer --

    def _begin(self, id: object = None) -> list[AnswerEvent]:
        if self._has_begun:
            return []
        self._has_begun = True
        return [Begin(id if isinstance(id, str) else None)]

    def _open_block(self, index: int, block: Block) -> list[AnswerEvent]:
        said = self._close_block(index)  # it cannot have two starts
        if len(self._open) >= MAX_OPEN_BLOCKS:
            raise UpstreamFailed(malformed("too many open content blocks"))
        opened = self._opened(block.type)
        self._open[index] = opened
        return said + opened.open(block)

    def _opened(self, kind: str | None) -> OpenBlock:
        if kind in PROSE:
            return Prose(self._held)
        if kind == TOOL:
            self._calls += 1
            return Tool(self._calls - 1, self._held)
        self._remark("foreign_block")
        return Foreign()

    def _close_block(self, index: int) -> list[AnswerEvent]:
        block = self._open.pop(index, None)
        return block.close() if block is not None else []

    # -- the events of a stream --

    def _take_start(self, event: StreamEvent) -> list[AnswerEvent]:
        message = decode_values(event.message)
        if not isinstance(message, dict):
            raise UpstreamFailed(malformed("message_start without message"))
        if self._has_begun:
            self._remark("second_start")
        self._ending.count_prompt(message.get("usage"))
        return self._begin(message.get("id")) + self._ending.counted()

    def _take_block(self, event: StreamEvent) -> list[AnswerEvent]:
        return self._begin() + self._open_block(event.index or 0, event.content_block or Block())

    def _take_piece(self, event: StreamEvent) -> list[AnswerEvent]:
        delta, index = event.delta, event.index or 0
        if delta is None:
            return []
        block = self._open.get(index)
        if block is not None:
            said = block.take(delta)
        else:  # without a start: text is text all the same, arguments have no call that they could belong to
            said = self._begin() + self._open_block(index, Block("text"))
            said += self._open[index].take(delta)
        if not said and (delta.text or delta.thinking or delta.partial_json):
            self._remark("stray_delta")
        return said

    def _take_block_end(self, event: StreamEvent) -> list[AnswerEvent]:
        return self._close_block(event.index or 0)

    def _take_message_delta(self, event: StreamEvent) -> list[AnswerEvent]:
        self._ending.count(decode_values(event.usage))
        if event.delta is not None:
            self._ending.stop(event.delta)
        return self._begin() + self._ending.counted()

    def _take_stop(self, event: StreamEvent) -> list[AnswerEvent]:
        said = self._begin()
        for index in sorted(self._open):
            said += self._close_block(index)
        self.complete = self.ended = True
        return said

    def _take_ping(self, event: StreamEvent) -> Sequence[AnswerEvent]:
        return ()


_HANDLERS: dict[str, Callable[[AnthropicReader, StreamEvent], Sequence[AnswerEvent]]] = {
    "message_start": AnthropicReader._take_start,
    "content_block_start": AnthropicReader._take_block,
    "content_block_delta": AnthropicReader._take_piece,
    "content_block_stop": AnthropicReader._take_block_end,
    "message_delta": AnthropicReader._take_message_delta,
    "message_stop": AnthropicReader._take_stop,
    "ping": AnthropicReader._take_ping,
}
