"""The seams: what the pipeline needs from the world, as protocols. Each has one implementation or more elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct

from gateway.core.call import UpstreamRequest
from gateway.core.catalog import Key
from gateway.core.errors import ErrorKind
from gateway.core.exchange import Limits
from gateway.core.held import Part
from gateway.core.receipt import Receipt


class Admitted(Struct, frozen=True, gc=False):
    """The key may go on; its slot is held until `Counters.release`."""

    limits: Limits


class Refused(Struct, frozen=True, gc=False):
    """The key is over a limit; nothing is held."""

    kind: ErrorKind
    retry_after_s: float
    limits: Limits


class Keys(Protocol):
    """Who owns a secret."""

    async def find(self, secret: str) -> Key | None: ...


class Counters(Protocol):
    """Requests per minute and requests at once, counted in one atomic step."""

    async def admit(self, key: Key, request_id: str) -> Admitted | Refused: ...

    def release(self, key: Key, request_id: str) -> None:
        """Give the slot of *request_id* back. Never blocks, never raises; a second call changes nothing."""


class Ledger(Protocol):
    """Where receipts go. `record` never blocks and never raises."""

    def record(self, receipt: Receipt) -> None: ...


class UpstreamAnswer(Protocol):
    """An answer of a provider whose head is here and whose body is still to be read."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""

    async def read(self) -> bytes:
        """The next bytes as they come, b"" at the end.

        Raises:
            UpstreamFailed: The body broke off or made no sense.
        """

    @property
    def ended(self) -> bool:
        """Whether it is known that `read` will give nothing more."""

    def close(self) -> None:
        """Drop the connection at once, whatever is under way. Synchronous; calling it again changes nothing."""

    def release(self) -> None:
        """The answer was read to its own terminator: keep the connection if its body ends shortly, else drop it."""


class Asking(Protocol):
    """A request under way to a provider."""

    async def answer(self) -> UpstreamAnswer:
        """The answer, as soon as its head is here. Resumable: a wait that was cut short may be begun anew.

        Raises:
            UpstreamFailed: No head came.
        """

    def close(self) -> None:
        """Drop the connection at once, whatever is under way, the body of the answer included. Synchronous.

        Whoever waits in `UpstreamAnswer.read` meanwhile is to be cancelled; it is not told.
        """


class Upstream(Protocol):
    """The way to providers."""

    def ask(self, request: UpstreamRequest, on_sent: Callable[[], None]) -> Asking:
        """Send *request*, without waiting for anything. Whoever asks closes: the asking, or the answer it gave.

        Args:
            on_sent: Called when the whole request is on its way: from then on the provider may work for it.
        """


class Fetcher(Protocol):
    """The way to what a caller points at."""

    async def fetch(self, url: str, *, max_bytes: int, timeout_s: float) -> tuple[str, bytes]:
        """
        The content type, as claimed, and the body of *url*.

        Raises:
            FetchFailed: Anything but a plain answer from a public address.
        """


class Stills(Protocol):
    """Animations as pictures that stand still."""

    async def still(self, animation: Part, *, max_pixels: int) -> bytes | None:
        """
        The first frame of a GIF as PNG, both in base64; None where it cannot be shown, or is larger than *max_pixels*.
        """


class Sink(Protocol):
    """The client's side of an exchange."""

    def on_leave(self, leave: Callable[[], None]) -> None:
        """Have *leave* called in the very moment in which the client is seen to be gone; the newest one counts."""

    @property
    def committed(self) -> bool:
        """Whether the 200 is settled: it leaves with the next bytes."""

    @property
    def blocked(self) -> bool:
        """Whether the client reads slower than we write."""

    def open(self, headers: tuple[tuple[str, str], ...]) -> None:
        """Commit the 200 with *headers*."""

    def write(self, data: bytes) -> None:
        """Hand over whole frames in one piece, without waiting for a slow client.

        Raises:
            ConnectionError: The client is gone.
        """

    async def drain(self) -> None:
        """Wait until the client has caught up; if it goes meanwhile, this or the next write raises ConnectionError."""

    def close(self, data: bytes) -> None:
        """Hand over the last frames and end the body properly, in one piece, as `write` does."""

    def abort(self) -> None:
        """Drop the connection so that the client cannot take the body for a whole one."""
