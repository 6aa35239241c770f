"""A lane whose frames go through something before they leave: what judges tools, and what masks texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.core.catalog import ClientDialectName
from gateway.core.errors import Failure
from gateway.core.receipt import Receipt
from gateway.core.usage import Basis, Usage
from gateway.dialects.anthropic_editing import AnthropicTextEditor
from gateway.dialects.base import Lane
from gateway.dialects.editing import TextEditor
from gateway.dialects.openai_editing import OpenAITextEditor

TEXT_EDITORS: Mapping[ClientDialectName, type[TextEditor]] = {
    "openai_chat": OpenAITextEditor,
    "anthropic_messages": AnthropicTextEditor,
}


class FrameEditor(Protocol):
    """
    Something between a lane and its client.

    Attributes:
        failure: What it has ended the answer with; nothing is said after that but the end.
    """

    @property
    def failure(self) -> Failure | None: ...

    def feed(self, frames: bytes) -> bytes:
        """What leaves for whole *frames*."""

    def end(self) -> bytes:
        """The answer is complete but for its end: what was held back."""


class EditedLane:
    """
    A lane and what its frames go through, in this order: one editor, or two.

    An answer is complete when its lane is and no editor has ended it. Before it is settled, `conclude` has to be asked:
    what is said last may be what ends it otherwise. What a lane says of itself is noted with each read: it is asked for
    several times a frame.
    """

    def __init__(self, lane: Lane, editors: tuple[FrameEditor, ...]) -> None:
        self.inner = lane
        """The lane without its editors."""
        self._editors = editors
        self._first, self._last = editors[0], editors[-1]
        self._rest = b""
        self._note()

    @property
    def note(self) -> str | None:
        return self.inner.note

    @note.setter
    def note(self, note: str | None) -> None:
        self.inner.note = note

    @property
    def failure(self) -> Failure | None:
        return self._first.failure or self._last.failure or self.inner.failure

    @property
    def deltas(self) -> int:
        return self.inner.deltas

    @property
    def response_id(self) -> str | None:
        return self.inner.response_id

    @property
    def _cut(self) -> Failure | None:
        return self._first.failure or self._last.failure

    def _note(self) -> None:
        lane = self.inner
        self.started, self.ended = lane.started, lane.ended
        self.progress, self.talking = lane.progress, lane.talking
        self.complete = lane.complete and self._cut is None

    def feed(self, data: bytes) -> bytes:
        frames = self.inner.feed(data)
        if frames:
            frames = self._first.feed(frames)
            if frames and self._last is not self._first:
                frames = self._last.feed(frames)
        self._note()
        return frames

    def end(self) -> bytes:
        out = self._edited(self.inner.end())
        self._note()
        return out

    def conclude(self) -> Failure | None:
        """The answer is complete: what is held back is looked at, and kept for `finish`. How an editor has ended it."""
        self._rest = self._edited(self.inner.last_words())
        for at, editor in enumerate(self._editors):
            if self._cut is None:
                self._rest += self._edited(editor.end(), at + 1)
        self._note()
        return self._cut

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        return self._rest + self._edited(self.inner.fail(failure, receipt))

    def finish(self, receipt: Receipt) -> bytes:
        return self._rest + self._edited(self.inner.finish(receipt))

    def last_words(self) -> bytes:
        return self._edited(self.inner.last_words())

    def measure(self) -> tuple[Usage, Basis]:
        return self.inner.measure()

    def received_tokens(self) -> int:
        return self.inner.received_tokens()

    def _edited(self, frames: bytes, first: int = 0) -> bytes:
        for editor in self._editors[first:]:
            if not frames:
                break
            frames = editor.feed(frames)
        return frames


def unedited(lane: Lane) -> Lane:
    """*lane* as it is without editors."""
    return lane.inner if isinstance(lane, EditedLane) else lane
