"""What every reader of a provider's answers has to keep in mind."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.core.errors import Failure, UpstreamFailed
from gateway.dialects.neutral import AnswerEvent


class AnswerState:
    """How far an answer has come; the attributes are those of `Reader`."""

    def __init__(self) -> None:
        self.complete = False
        self.ended = False
        self.progress = 0
        self.note: str | None = None

    def close(self) -> None:
        """See `Reader`; the end of a body proves nothing where there is a marker of the end."""

    def _fail(self, failure: Failure) -> Sequence[AnswerEvent]:
        """Raises UpstreamFailed, unless the answer is `complete`: then *failure* is but noted, and nothing follows."""
        if not self.complete:
            raise UpstreamFailed(failure)
        self._remark(f"after_finish:{failure.reason}")
        self.ended = True
        return ()

    def _remark(self, note: str) -> None:
        self.note = self.note or note
