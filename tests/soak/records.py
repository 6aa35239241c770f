"""What the provider and the customers write down of each call; JSON lines between their processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

End = Literal["finished", "cut", "left", "refused"]
"""`cut`: by the provider itself; `left`: its peer closed or reset the connection first; `refused`: a 4xx or 5xx."""
Seen = Literal["whole", "broken", "refused", "left", "lost", "unsent"]
"""`broken`: a stream that ended with an error frame; `lost`: a connection that ended where it must not."""


KEPT = 1_000  # events of one attempt: no call has more


class Attempt(Struct, frozen=True):
    """
    One request as the provider saw it, in whole.

    Attributes:
        arrived_s: Epoch second.
        tokens: Of the answer, written to the socket.
        reported: Prompt, cached and completion tokens of the usage that it wrote; None where it wrote none.
        written_ms: How long after the arrival each event with text was written, as far as the first `KEPT` go.
        over_ms: And how long after it everything was over.
    """

    marker: str
    model: str
    arrived_s: float
    stream: bool
    prompt: int
    tokens: int
    end: End
    reported: tuple[int, int, int] | None = None
    written_ms: tuple[int, ...] = ()
    over_ms: int = 0

    @property
    def over_s(self) -> float:
        """Epoch second of its end."""
        return self.arrived_s + self.over_ms / 1000

    def written_by(self, at_s: float) -> int:
        """How many events were written before the epoch second *at_s*."""
        return sum(self.arrived_s + ms / 1000 < at_s for ms in self.written_ms)


class Told(Struct, frozen=True):
    """
    One request as its customer saw it.

    Attributes:
        sent_s: Epoch second, as is `over_s`, that of its end.
        request_id: As the head of the answer had it.
        code: Of the error that it was told.
        tokens: Events of the answer's text that came.
        cost_nano_usd: What it was told that the call costs.
        head_ms: From the request to the head of the answer.
        is_own: Nothing in the answer was another call's, nothing was doubled, missing in between or out of order.
    """

    marker: str
    sent_s: float
    over_s: float
    seen: Seen
    status: int = 0
    request_id: str = ""
    code: str = ""
    tokens: int = 0
    cost_nano_usd: int | None = None
    head_ms: float = 0.0
    is_own: bool = True


_encode = msgspec.json.Encoder().encode
_attempts = msgspec.json.Decoder(Attempt)


def write_attempts(path: Path, attempts: Iterable[Attempt]) -> None:
    """Replace *path* by *attempts*, one in a line."""
    with path.open("wb") as file:
        for attempt in attempts:
            file.write(_encode(attempt) + b"\n")


def read_attempts(path: Path) -> list[Attempt]:
    """What `write_attempts` wrote."""
    return [_attempts.decode(line) for line in path.read_bytes().splitlines()]
