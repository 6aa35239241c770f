"""The seams: what the pipeline needs from the world, as protocols. Each has one implementation or more elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil
from typing import Literal, Protocol

from msgspec import Struct

from gateway.core.accounts import Key, Scope, Tier
from gateway.core.booking import Admission
from gateway.core.call import UpstreamRequest
from gateway.core.errors import ErrorKind, GatewayError
from gateway.core.exchange import Answer, Begun, Limits, Place
from gateway.core.guarding import Rules
from gateway.core.held import Part
from gateway.core.receipt import Receipt


class StoreUnavailable(Exception):
    """A store cannot be asked now, or takes too long; the cause is for the log."""


class Draw(Struct, frozen=True, gc=False):
    """
    What a call wants to draw from something that is not to be overdrawn.

    Attributes:
        need: The worst case.
        floor: The least that it can do with, at most `need`: a call that can be stopped on the way takes what is left.
    """

    need: int = 0
    floor: int = 0


class Order(Struct, frozen=True, gc=False):
    """What a call asks of its key's limits, all of it in one atomic step.

    Attributes:
        tokens: Prompt and answer, as far as they can be told: what is taken from the tokens per minute.
        weighted: Weighted tokens, in the worst case.
        nano_usd: Its cost, in the worst case, to every budget that it draws on.
    """

    key: Key
    request_id: str
    session_id: str | None = None
    tokens: int = 0
    weighted: Draw = Draw()
    nano_usd: Draw = Draw()


class Spent(Struct, frozen=True, gc=False):
    """What a call has come to."""

    tokens: int = 0
    weighted: int = 0
    nano_usd: int = 0


class Admitted(Struct, frozen=True, gc=False):
    """
    The call may go on; its place and what it draws are held until `Counters.settle`.

    Attributes:
        at_s: Epoch second, by the clock of the counters.
        granted: What is held of `Order.nano_usd` and `Order.weighted`: between floor and need.
        budget: The budget of which nothing is left now, in words; `allowance` the same of the allowance. "" for none.
    """

    limits: Limits
    at_s: float
    granted_nano_usd: int = 0
    granted_weighted: int = 0
    budget: str = ""
    allowance: str = ""


# Which limit was met; `blind`: they cannot be told.
Met = Literal["rpm", "tpm", "inflight", "budget", "allowance", "blind"]


class Left(Struct, frozen=True, gc=False):
    """
    What is neither spent nor held of a budget (nano-USD) or an allowance (weighted tokens).

    Attributes:
        limit: In words, such as `0.50 USD per month for this key`; all of it.
        amount: Of all of it, or of this process's part (`is_part`).
        held: What calls under way hold of the same.
    """

    limit: str
    met: Literal["budget", "allowance"]
    amount: int
    held: int = 0
    is_part: bool = False


class Refused(Struct, frozen=True, gc=False):
    """The key is over a limit, or its limits cannot be told; nothing is held.

    Attributes:
        limit: The one that was met, for the message, such as `3 requests per minute`; "" for budgets and allowances.
        met: The same as a word of ours.
        lefts: Of every budget and allowance that bounds the call and whose spending is known, in case one has less
            left than the call takes; which one that is follows from what the call may come to.
    """

    kind: ErrorKind
    retry_after_s: float | None
    limits: Limits
    limit: str = ""
    met: Met = "blind"
    lefts: tuple[Left, ...] = ()

    def as_error(self) -> GatewayError:
        """The error, whose message says which limit was met and how long to wait, in seconds as `retry-after` has."""
        message = self.kind.message
        if self.limit:
            message = f"{message.removesuffix('.')}; its limit is {self.limit}."
        if self.limit and self.retry_after_s is not None:
            message = f"{message.removesuffix('.')}; try again in {ceil(self.retry_after_s)} s."
        return GatewayError(self.kind, message, retry_after_s=self.retry_after_s)


class Keys(Protocol):
    """Who owns a secret."""

    async def find(self, secret: str) -> Key | None:
        """
        The key, None for one that is unknown, malformed, revoked or expired.

        Raises:
            StoreUnavailable: That cannot be told now.
        """

    def knows(self, secret: str) -> bool:
        """Whether *secret* is a key that was found of late, so that finding it again costs next to nothing."""


class Terms(Protocol):
    """What limits mean that are kept as they would stand in the file."""

    @property
    def names(self) -> frozenset[str]:
        """The tiers that the file has."""

    def tier(self, name: str, limits: Mapping[str, object] | None, own: Mapping[str, object]) -> Tier:
        """
        The tier *name* of *limits*, or of the file where those are None, with a key's *own* limits instead of its.

        Raises:
            BadTerms: There is no such tier, or something is wrong with *limits* or *own*.
        """

    def written(self, name: str) -> Mapping[str, object]:
        """The tier *name* of the file as it stands there. Raises KeyError."""

    def is_shipped(self, name: str) -> bool:
        """Whether the tier *name* is one that ships with the gateway, and not the file's own."""

    def filed_policy(self, name: str) -> Rules | None:
        """The policy *name* of the file; None where it has none."""

    def policy(self, rules: Mapping[str, object]) -> Rules:
        """What a policy's *rules* come to. Raises BadTerms: they are none that this version enforces."""


class Counters(Protocol):
    """
    Everything that a key, its tenant and its sessions are limited in, taken in one atomic step.

    Attributes:
        is_far: Whether a decision takes a round trip, so that there is time to do something else meanwhile.
    """

    @property
    def is_far(self) -> bool: ...

    async def admit(self, order: Order) -> Admitted | Refused: ...

    def settle(self, request_id: str, spent: Spent, *, key_id: str = "") -> None:
        """
        Give the place of *request_id* back and book *spent* for what was held. Never blocks, never raises; a second
        call changes nothing.

        Args:
            key_id: Whose place it is, for a request that a process which is gone had admitted.
        """

    def written(self, request_ids: Iterable[str]) -> None:
        """What these have spent is in the ledger now, from where lost counters are loaded; what was settled and is not
        has to be told to them again. Never blocks, never raises."""

    async def held_by(self, owner: str) -> Collection[str]:
        """
        The requests that the process *owner* has admitted and for which something is held still; none where that ends
        with its process.

        Raises:
            StoreUnavailable: That cannot be told now.
        """

    def standing(self, key: Key) -> Limits:
        """Where *key* stood last, as far as this process has seen: for answers to what was never admitted."""


class Booked(Struct, frozen=True, gc=False):
    """
    What the ledger has of one scope in one period.

    Attributes:
        recorded: The requests in it that were recorded within the last two minutes, and those that were asked about:
            their counters may be told of them a second time.
    """

    nano_usd: int = 0
    weighted: int = 0
    recorded: tuple[str, ...] = ()


class Spending(Protocol):
    """What has been spent, by the ledger."""

    async def booked(self, scope: Scope, owner: str, since_ms: int, ids: Collection[str]) -> Booked:
        """
        All that was charged to *owner*, a key, a tenant or a session's digest, for calls admitted from *since_ms* on.

        Args:
            ids: Requests that may be in it, however long ago they were recorded.

        Raises:
            StoreUnavailable: That cannot be told now.
        """


class Ledger(Protocol):
    """Where receipts go. `record` never blocks and never raises."""

    def record(self, receipt: Receipt) -> None: ...


class Journal(Ledger, Protocol):
    """A ledger that knows of an exchange before it begins."""

    async def admit(self, admission: Admission) -> Place:
        """
        Return when *admission* is where it outlives this process.

        Raises:
            StoreUnavailable: It is not.
        """

    def begin(self, admission: Admission) -> Begun:
        """
        Have *admission* written while limits are being asked. Without a word of theirs it comes to nothing.

        Raises:
            StoreUnavailable: It cannot be.
        """


class Claim(Struct, frozen=True, gc=False):
    """
    A call that is to be done once, however often it is sent: its caller has given it a name (`Idempotency-Key`).

    Attributes:
        name: SHA-256 of the caller's name for it. Names of two tenants never meet.
        digest: SHA-256 of what is asked for; the same name with another one is the caller's mistake.
        request_id: Of the request that wants to do it.
    """

    tenant: str
    name: bytes
    digest: bytes
    request_id: str


class Kept(Struct, frozen=True, gc=False):
    """How a call was answered that had been done before.

    Attributes:
        request_id: Of the request that did it.
        answer: None where it was too long to be kept.
    """

    request_id: str
    answer: Answer | None


Claimed = Literal["claimed", "running", "mismatch"] | Kept


class Replays(Protocol):
    """Which named calls are under way, and how those that are done were answered."""

    async def claim(self, claim: Claim) -> Claimed:
        """
        Take the call on, in one atomic step. `claimed`: it is the asker's, who has to `keep` or to `release` it;
        `running`: another request does it; `mismatch`: its name stands for another call.

        Raises:
            StoreUnavailable: That cannot be told now; nothing is claimed.
        """

    def keep(self, claim: Claim, answer: Answer | None) -> None:
        """The call is done: repeat *answer* to whoever sends it again. Never blocks, never raises."""

    def release(self, claim: Claim) -> None:
        """The call was not answered: whoever sends it again has it done. Never blocks, never raises."""

    async def written(self, claim: Claim) -> None:
        """Wait until everybody knows what has become of *claim*, but not for long."""


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
            on_sent: Called as the last of the request leaves: from then on the provider may work for it.
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
