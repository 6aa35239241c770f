"""The per-request context, and the answer a pipeline gives when it does not stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from msgspec import Struct, field

from gateway.core.accounts import Key
from gateway.core.booking import Admission, AttemptResult
from gateway.core.call import ALL_PARAMS, Call, Params
from gateway.core.catalog import Model, OnCancel, Route
from gateway.core.errors import Failure, GatewayError
from gateway.core.guarding import GuardMode, Status, Verdict
from gateway.core.money import Price
from gateway.core.usage import NO_USAGE, Basis, Usage

Outcome = Literal["completed", "cancelled", "interrupted", "rejected", "failed"]
Source = Literal["playground"]

_KEEPING: tuple[GuardMode, ...] = ("redact", "block")  # modes of guards that keep back what they find
_UNSAID = Verdict("error")
_NOT_LET_PASS: tuple[Status, ...] = ("block", "error")


class Limits(Struct, frozen=True, gc=False):
    """
    Where a key stands after its admission; None where the tier has no such limit.

    Attributes:
        rpm_remaining: Of the rate alone; what burst credits add is not in it.
        burst_active: Whether the minute goes beyond the rate, on credits.
        weighted: The tenant's allowance of the month; `weighted_remaining` what was left of it for this call and later
            ones, below 0 where more was used.
        is_blind: Whether the shared counters could not be asked, and this process's part of the limits was.
    """

    rpm: int | None = None
    rpm_remaining: int | None = None
    tpm: int | None = None
    tpm_remaining: int | None = None
    burst_active: bool = False
    burst_credits: int | None = None
    burst_capacity: int | None = None
    weighted: int | None = None
    weighted_remaining: int | None = None
    is_blind: bool = False


NO_LIMITS = Limits()


class Attempt(Struct):
    """One call of a provider.

    Attributes:
        was_sent: The whole request was on its way, so the provider may have worked for it.
        usage: What it counted for its part of an answer that it continued, or another was asked to continue.
    """

    route: Route
    result: AttemptResult = "open"
    was_sent: bool = False
    failure: Failure | None = None
    ended_s: float | None = None
    usage: Usage | None = None


class Answer(Struct, frozen=True, gc=False):
    """A whole HTTP answer: `headers` besides those every answer carries."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Place(Protocol):
    """Where the progress of one exchange is noted, so that it outlives the process. Nothing here blocks or raises."""

    def sent(self, route: Route) -> None:
        """An attempt is on its way: its provider may work for it from now on."""

    def moved(self, tokens: int, now_s: float) -> None:
        """So many tokens of the answer are here, at the least, by *now_s* of the monotonic clock."""


class Nowhere:
    """The place of an exchange that nobody has to pay for."""

    def sent(self, route: Route) -> None:
        """Not noted."""

    def moved(self, tokens: int, now_s: float) -> None:
        """Not noted."""


NOWHERE = Nowhere()


class Begun(Protocol):
    """
    An admission on its way to where it outlives this process. Nobody has to wait for it: the receipt ends it.

    Attributes:
        admission: As it was begun.
    """

    @property
    def admission(self) -> Admission: ...

    async def kept(self, admission: Admission) -> Place:
        """
        Return when it is there.

        Args:
            admission: What it has become: limits let it in, and have their own word on what is reserved and since when.

        Raises:
            StoreUnavailable: It is not; see `core.ports`.
        """


class Exchange(Struct):
    """Everything that is known of one request while it runs; the only mutable thing that stages share.

    All `*_s` stamps are seconds of the monotonic clock; None means that it has not happened.

    Attributes:
        params: What became of the call for the route that was asked last.
        dispatched_s: The first request left for a provider.
        answered_s: The upstream's first good frame (or whole JSON body) was here.
        committed_s: The client's status and headers were settled.
        first_token_s: The first piece of the answer's content was here.
        gone_s: The client was seen to be gone, or to take nothing any more.
        on_cancel: What became of the provider's answer then.
        source: What of ours the call was made by; None for a client that asked the endpoint itself.
        refusal: Why nothing can serve the call; it is told once the call is within its key's limits.
        price: That of the moment of admission.
        prompt_tokens: Our count of the prompt, where its worst case was reckoned.
        granted_nano_usd: What is held for it of its budgets; None where it draws on none.
        stop_tokens: Tokens of the answer at which it has to be stopped, where less is held than it may cost at worst.
        stop_limit: Then, the budget or the allowance of which there is no more, in words.
        admitted_s: Epoch second of admission, by the clock of the counters.
        response_id: What the client knows the answer by, as far as one has begun.
        admission: What the journal has of it; None while there is nothing, as of what is not to be paid for at all.
        begun: Its admission on its way into the journal, where that was begun while limits were being asked.
        place: Where its progress is noted.
        verdicts: What guards said so far, by their names; besides them `policy` and `response_content`.
        originals: By placeholder, what stood in its place in the call and is to be put back into the answer.
    """

    request_id: str
    trace_id: str
    endpoint: str
    call: Call
    key: Key
    started_s: float
    limits: Limits = NO_LIMITS
    model: Model | None = None
    candidates: tuple[Route, ...] = ()
    route: Route | None = None
    attempts: list[Attempt] = field(default_factory=list)
    usage: Usage = NO_USAGE
    basis: Basis = "none"
    failure: Failure | None = None
    status: int = 0
    error_code: str | None = None
    note: str | None = None
    params: Params = ALL_PARAMS
    dispatched_s: float | None = None
    answered_s: float | None = None
    committed_s: float | None = None
    first_token_s: float | None = None
    gone_s: float | None = None
    on_cancel: OnCancel | None = None
    source: Source | None = None
    refusal: GatewayError | None = None
    price: Price | None = None
    prompt_tokens: int | None = None
    granted_nano_usd: int | None = None
    stop_tokens: int | None = None
    stop_limit: str = ""
    admitted_s: float | None = None
    response_id: str | None = None
    admission: Admission | None = None
    begun: Begun | None = None
    place: Place = NOWHERE
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    originals: Mapping[str, str] = {}

    @property
    def caller(self) -> tuple[str | None, Mapping[str, str]]:
        """
        The caller's user and its own words on the call, as far as they may be told and kept: as they leave.

        They are nothing while a guard that could keep something back has not let them pass, and where it never does.
        """
        for name, terms in self.key.rules.guards.items():
            if terms.mode in _KEEPING and self.verdicts.get(name, _UNSAID).status in _NOT_LET_PASS:
                return None, {}
        return self.call.user, self.call.metadata
