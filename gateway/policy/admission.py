"""
Admission as a state machine: what is counted for keys, tenants and sessions, and every step that changes it.

`storage/admission.lua` is the same machine in Redis; a property test compares the two on random histories. Steps are
atomic, time is epoch milliseconds and passed in, money is whole nano-USD.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from gateway.core.ports import Order, Spent
from gateway.policy.entitlement import Account, Entitlement
from gateway.policy.periods import DAY_MS, number_of
from gateway.policy.rates import Rate, RateRule, Tokens, current, current_tokens, forgotten_ms, take
from gateway.policy.verdict import Count, Open, Part, Standing, Step, Verdict

# How long ids stay known that a load has counted: their holds may be settled late, by a writer that waits for Redis.
DONE_MS = 3_600_000
# How long an account is kept that nobody draws on; it is loaded again then. No call runs for so long, so a guess waits
# as long for the word of the request's own process.
KEPT_MS = 2 * DAY_MS


@dataclass(slots=True)
class Tally:
    """An account in one period. `pending` and `done` are ids: booked before it was loaded, and counted by the load."""

    period: int
    touched_ms: int
    used: int = 0
    held: int = 0
    is_loaded: bool = False
    pending: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _View:
    """What a step sees, and changes before it is written down."""

    now_ms: int
    rate: Rate | None
    tokens: Tokens | None
    running: int
    tallies: list[Tally]

    @property
    def standing(self) -> Standing:
        rate, tokens = self.rate, self.tokens
        return Standing(
            rate.used if rate else 0,
            rate.credits if rate else 0,
            rate.opened_ms if rate else 0,
            tokens.used if tokens else 0,
            tokens.opened_ms if tokens else 0,
            self.running,
            tuple([Count(one.period, one.used, one.held, one.is_loaded) for one in self.tallies]),
        )


class Hold(Struct, frozen=True, gc=False):
    """
    What a request holds until it is settled. `reserved` tokens count in the minute that opened at `opened_ms`.

    Attributes:
        is_told_again: The counters of its admission were lost.
    """

    parts: tuple[Part, ...]
    expires_ms: int
    holder: str = ""
    opened_ms: int = 0
    reserved: int = 0
    is_told_again: bool = False


class _Guess(Struct, frozen=True, gc=False):
    """What was booked for a request whose own process seemed to be dead."""

    parts: tuple[Part, ...]
    expires_ms: int


class Admission:
    """
    All counters of one process.

    Args:
        lease_ms: How long a place is held without renewal; `hold_ms` the same of money and tokens, which are then
            taken to be spent.
        rejoin_ms: How long after the birth of an epoch calls that draw on accounts have to wait.
    """

    def __init__(self, *, lease_ms: int, hold_ms: int, rejoin_ms: int = 0, epoch: int = 1, born_ms: int = 0) -> None:
        self.epoch = epoch
        self.born_ms = born_ms
        self._lease_ms = lease_ms
        self._hold_ms = hold_ms
        self._rejoin_ms = rejoin_ms
        self._rates: OrderedDict[str, tuple[Rate, RateRule]] = OrderedDict()
        self._tokens: OrderedDict[str, Tokens] = OrderedDict()
        self._leases: dict[str, dict[str, int]] = {}
        self._accounts: OrderedDict[str, Tally] = OrderedDict()
        self._holds: dict[str, Hold] = {}
        self._guesses: dict[str, _Guess] = {}

    def __len__(self) -> int:
        """Entries held: what bounds of memory are about."""
        counted = len(self._rates) + len(self._tokens) + len(self._leases) + len(self._accounts)
        return counted + len(self._holds) + len(self._guesses)

    def admit(self, order: Order, limits: Entitlement, now_ms: int) -> Verdict:
        """Take all that *order* needs, or nothing."""
        if limits.accounts and self.born_ms <= now_ms < self.born_ms + self._rejoin_ms:  # else the clock was put back
            return Verdict("wait", now_ms, self.epoch, retry_ms=self.born_ms + self._rejoin_ms - now_ms)
        view = self._view(limits, now_ms)
        step, retry_ms = _met(order, limits, view, now_ms)
        if step != "admitted":
            return Verdict(step, now_ms, self.epoch, view.standing, retry_ms)
        granted = _granted(order, limits, view.tallies)
        if granted is None:
            return Verdict("account", now_ms, self.epoch, view.standing)
        if not all(one.is_loaded for one in view.tallies):
            return Verdict("load", now_ms, self.epoch, view.standing)
        money, weighted = granted
        self._take(order, limits, view, money, weighted)
        self._forget(now_ms)
        return Verdict("admitted", now_ms, self.epoch, view.standing, money=money, weighted=weighted)

    def settle(self, open_: Open, spent: Spent, now_ms: int) -> None:
        """
        Give back what a request holds and book what it has *spent*; a second call changes nothing.

        Where the counters of its admission are lost it is booked all the same, once; without a hold in its own epoch it
        has been settled. By its id alone it is settled by another process, which has taken its own for dead: should
        that have a word to say yet, this takes the place of what was guessed; so it does of what `sweep` has booked.
        """
        hold, guess = self._holds.pop(open_.request_id, None), self._taken_guess(open_.request_id, now_ms)
        if open_.has_place or hold is not None:
            self._release(open_.request_id, open_.holder or (hold.holder if hold else ""))
        if hold is not None:
            self._reconcile(hold, spent)
            self._close(open_.request_id, hold, spent, now_ms, guess)
            self._note_guess(open_, hold.parts, spent, now_ms)
        elif guess:
            for part in guess:
                one = self._accounts.get(part.account.name)
                if one is not None and one.period == part.period:
                    _book_for(one, open_.request_id, _share_of(spent, part), now_ms, part)
                    if open_.parts and open_.epoch != self.epoch and one.is_loaded:
                        one.done[open_.request_id] = now_ms + DONE_MS
            self._note_guess(open_, tuple(guess), spent, now_ms)
        elif open_.epoch != self.epoch:
            for part in open_.parts:
                one = self._at(part.account, now_ms)
                if one.period == part.period:
                    _book(one, open_.request_id, _share_of(spent, part), now_ms)
                    if one.is_loaded:
                        one.done[open_.request_id] = now_ms + DONE_MS

    def renew(self, open_: Open, now_ms: int) -> bool:
        """Hold a place for longer, or again; whether there is a hold of money or tokens as well."""
        if open_.has_place:
            running = self._leases.setdefault(open_.holder, {})
            running.pop(open_.request_id, None)  # the last to be renewed expires last
            running[open_.request_id] = now_ms + self._lease_ms
        hold = self._holds.get(open_.request_id)
        if hold is None:
            return False
        self._holds[open_.request_id] = replace(hold, expires_ms=now_ms + self._hold_ms)
        return True

    def register(self, open_: Open, now_ms: int) -> None:
        """Hold again what counters have lost, or what of it was not booked as a guess: that is spent already."""
        if open_.request_id in self._holds:
            return
        guess, parts = self._guesses.get(open_.request_id), []
        before = _by_place(guess.parts if guess is not None and guess.expires_ms > now_ms else ())
        for part in open_.parts:
            one = self._at(part.account, now_ms)
            if one.period == part.period:
                known = before.get((part.account.name, part.period))
                part = replace(part, amount=max(0, part.amount - (known.amount if known else 0)))
                one.held += part.amount
            parts.append(part)
        self._holds[open_.request_id] = Hold(tuple(parts), now_ms + self._hold_ms, open_.holder, is_told_again=True)

    def load(self, account: Account, period: int, spent: int, recorded: Collection[str], now_ms: int) -> None:
        """
        Set what has been *spent* from *account* in *period*, by the ledger.

        Args:
            recorded: The requests in it that may be booked here as well, or may yet be: those recorded of late, and
                those of `pending` that are in the ledger.
        """
        one = self._at(account, now_ms)
        if one.is_loaded or one.period != period:
            return
        known = set(recorded)
        one.used = spent + sum([amount for name, amount in one.pending.items() if name not in known])
        one.done = dict.fromkeys([*recorded, *one.pending], now_ms + DONE_MS)
        one.pending = {}
        one.is_loaded = True

    def pending(self, account: Account, now_ms: int) -> tuple[str, ...]:
        """The requests that were booked before *account* is loaded."""
        return tuple(self._seen(account, now_ms).pending)

    def sweep(self, now_ms: int) -> None:
        """
        Settle, at what they held, the holds that nobody has renewed; forget ids that nobody settles any more.

        It is a guess: their process may have stood still, or the clock been put forward.
        """
        for request_id, hold in [(name, hold) for name, hold in self._holds.items() if hold.expires_ms <= now_ms]:
            del self._holds[request_id]
            booked = self._close(request_id, hold, None, now_ms, self._taken_guess(request_id, now_ms))
            if booked:
                self._guesses[request_id] = _Guess(booked, now_ms + KEPT_MS)
        for request_id in [name for name, guess in self._guesses.items() if guess.expires_ms <= now_ms]:
            del self._guesses[request_id]
        for one in self._accounts.values():
            if one.done:
                one.done = {name: until_ms for name, until_ms in one.done.items() if until_ms > now_ms}

    def lose(self, epoch: int, now_ms: int) -> None:
        """Forget everything, as a server does that is emptied; a new epoch begins."""
        self.fail_over(epoch, now_ms)
        for table in (self._rates, self._tokens, self._leases):
            table.clear()

    def fail_over(self, epoch: int, now_ms: int) -> None:
        """Begin a new epoch with what is there: accounts and holds may lack the newest, so they are told again."""
        self.epoch, self.born_ms = epoch, now_ms
        self._accounts.clear()
        self._holds.clear()
        self._guesses.clear()

    def standing(self, limits: Entitlement, now_ms: int) -> Standing:
        """Where *limits* stand at *now_ms*; nothing is taken."""
        return self._view(limits, now_ms).standing

    def _view(self, limits: Entitlement, now_ms: int) -> _View:
        holder, rate, tokens = limits.holder, None, None
        if limits.rate is not None:
            known = self._rates.get(holder)
            rate = current(known[0] if known else None, now_ms, limits.rate)
        if limits.tpm is not None:
            tokens = current_tokens(self._tokens.get(holder), now_ms)
        running = len(self._running(holder, now_ms)) if limits.inflight is not None else 0
        return _View(now_ms, rate, tokens, running, [self._seen(account, now_ms) for account in limits.accounts])

    def _take(self, order: Order, limits: Entitlement, view: _View, money: int, weighted: int) -> None:
        """Write down, in *view* as well, what *order* was granted."""
        request_id, holder, opened_ms, reserved = order.request_id, limits.holder, 0, 0
        if view.rate is not None and limits.rate is not None:
            rate = view.rate = take(view.rate, limits.rate) or view.rate
            self._rates[holder] = rate, limits.rate
        if view.tokens is not None and limits.tpm is not None:
            opened_ms, reserved = view.tokens.opened_ms, min(order.tokens, limits.tpm)
            view.tokens = self._tokens[holder] = Tokens(opened_ms, view.tokens.used + reserved)
        if limits.inflight is not None:
            self._leases.setdefault(holder, {})[request_id] = view.now_ms + self._lease_ms
            view.running += 1
        if view.tallies or reserved:
            parts = []
            for account, one in zip(limits.accounts, view.tallies, strict=True):
                self._accounts[account.name], one.touched_ms = one, view.now_ms
                part = Part(account, one.period, account.amount_of(money, weighted))
                one.held += part.amount
                parts.append(part)
            self._holds[request_id] = Hold(tuple(parts), view.now_ms + self._hold_ms, holder, opened_ms, reserved)

    def _running(self, holder: str, now_ms: int) -> Collection[str]:
        """The requests that hold places; those that were not renewed are put out."""
        running = self._leases.get(holder)
        if running is None:
            return ()
        while running and next(iter(running.values())) <= now_ms:
            del running[next(iter(running))]
        return running

    def _seen(self, account: Account, now_ms: int) -> Tally:
        """
        *account* in the period of *now_ms*; a new one is not kept: callers choose the names of sessions, and who is
        refused may send thousands. A clock that was put back does not bring an old period back.
        """
        number = number_of(account.period, now_ms)
        one = self._accounts.get(account.name)
        if one is None or one.period < number:
            return Tally(number, now_ms, is_loaded=one is not None and one.is_loaded)
        return one

    def _at(self, account: Account, now_ms: int) -> Tally:
        """As `_seen`, to be changed."""
        one = self._accounts[account.name] = self._seen(account, now_ms)
        one.touched_ms = now_ms
        return one

    def _release(self, request_id: str, holder: str) -> None:
        running = self._leases.get(holder)
        if running is not None:
            running.pop(request_id, None)
            if not running:
                del self._leases[holder]

    def _taken_guess(self, request_id: str, now_ms: int) -> Sequence[Part]:
        guess = self._guesses.pop(request_id, None)
        return guess.parts if guess is not None and guess.expires_ms > now_ms else ()

    def _note_guess(self, open_: Open, parts: tuple[Part, ...], spent: Spent, now_ms: int) -> None:
        """Keep what was booked by a process that is not the request's own."""
        if parts and not open_.has_place and not open_.parts:
            booked = tuple([replace(part, amount=_share_of(spent, part)) for part in parts])
            self._guesses[open_.request_id] = _Guess(booked, now_ms + KEPT_MS)

    def _close(
        self, request_id: str, hold: Hold, spent: Spent | None, now_ms: int, guess: Sequence[Part]
    ) -> tuple[Part, ...]:  # fmt: skip
        """
        Book what was *spent* in place of a *guess*, or where that is not known what was held besides it.

        Returns:
            What was booked.
        """
        before, booked = _by_place(guess), []
        for part in hold.parts:
            one = self._accounts.get(part.account.name)
            if one is not None and one.period == part.period:
                one.held -= part.amount
                known = before.get((part.account.name, part.period))
                amount = part.amount + (known.amount if known else 0) if spent is None else _share_of(spent, part)
                if _book_for(one, request_id, amount, now_ms, known):
                    booked.append(replace(part, amount=amount))
                if hold.is_told_again and one.is_loaded:  # a second settlement would not find it in its own epoch
                    one.done[request_id] = now_ms + DONE_MS
        return tuple(booked)

    def _reconcile(self, hold: Hold, spent: Spent) -> None:
        """The tokens that were spent take the place of those reserved, while their minute lasts."""
        tokens = self._tokens.get(hold.holder)
        if hold.reserved and tokens is not None and tokens.opened_ms == hold.opened_ms:
            used = max(0, tokens.used + spent.tokens - hold.reserved)
            self._tokens[hold.holder] = Tokens(tokens.opened_ms, used)

    def _forget(self, now_ms: int) -> None:
        """Look at the two of each that were looked at longest ago: memory stays within those seen of late."""
        for _ in range(min(2, len(self._rates))):
            holder, (rate, rule) = next(iter(self._rates.items()))
            self._rates.move_to_end(holder)
            if forgotten_ms(rate, rule) <= now_ms:
                del self._rates[holder]
        for _ in range(min(2, len(self._tokens))):
            holder, tokens = next(iter(self._tokens.items()))
            self._tokens.move_to_end(holder)
            if tokens.ends_ms <= now_ms:
                del self._tokens[holder]
        for _ in range(min(2, len(self._accounts))):
            name, one = next(iter(self._accounts.items()))
            self._accounts.move_to_end(name)
            if one.touched_ms + KEPT_MS <= now_ms and not one.held and not one.pending:
                del self._accounts[name]


def _by_place(parts: Sequence[Part]) -> dict[tuple[str, int], Part]:
    return {(part.account.name, part.period): part for part in parts}


def _book(one: Tally, request_id: str, amount: int, now_ms: int) -> bool:
    """Whether it is booked: a load may have counted it."""
    if not one.is_loaded:
        one.pending[request_id] = amount
    elif one.done.get(request_id, 0) > now_ms:
        return False
    else:
        one.used += amount
    return True


def _book_for(one: Tally, request_id: str, amount: int, now_ms: int, guess: Part | None) -> bool:
    """Book *amount*, in place of what was guessed if anything was; as `_book`."""
    if guess is not None and one.is_loaded:
        one.used = max(0, one.used + amount - guess.amount)
        return True
    return _book(one, request_id, amount, now_ms)


def _share_of(spent: Spent, part: Part) -> int:
    return spent.nano_usd if part.account.is_money else spent.weighted


def _met(order: Order, limits: Entitlement, view: _View, now_ms: int) -> tuple[Step, int]:
    """The first limit that *order* meets besides those of accounts, and when it may come again."""
    rate, tokens, tpm = view.rate, view.tokens, limits.tpm
    if rate is not None and limits.rate is not None and take(rate, limits.rate) is None:
        return "rpm", rate.ends_ms - now_ms
    if tokens is not None and tpm is not None and tokens.used + min(order.tokens, tpm) > tpm:
        return "tpm", tokens.ends_ms - now_ms
    if limits.inflight is not None and view.running >= limits.inflight:
        return "inflight", 0
    return "admitted", 0


def _granted(order: Order, limits: Entitlement, tallies: list[Tally]) -> tuple[int, int] | None:
    """
    The money and the weighted tokens that *order* may hold: what it needs, or what is left if that is enough for it to
    begin with; None where an account has less. Those that are not loaded are passed over: for who is refused by another
    nothing is loaded, however many sessions it names.
    """
    granted = {True: order.nano_usd.need, False: order.weighted.need}
    for account, one in zip(limits.accounts, tallies, strict=True):
        draw = account.draw_of(order)
        left = account.limit - one.used - one.held
        if draw.need == 0 or left >= draw.need or not one.is_loaded:
            continue
        if left < max(1, draw.floor):
            return None
        granted[account.is_money] = min(granted[account.is_money], left)
    return granted[True], granted[False]
