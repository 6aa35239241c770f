"""Guards: what a call would tell a provider is read, and the call refused or changed, before anybody is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import structs

from gateway.core.call import Call
from gateway.core.errors import GUARDS_UNAVAILABLE, GatewayError
from gateway.core.exchange import Answer, Exchange
from gateway.core.guarding import GUARDS, MODERATION, Finding, GuardName, GuardTerms, Verdict
from gateway.core.receipt import Receipt
from gateway.dialects.hearing import said_otherwise
from gateway.dialects.spoken import place_in, with_pieces
from gateway.guards.blanking import placeholders_in
from gateway.pipeline.scanning import FINDING_BYTES, Adviser, Reading, ScanFailed, Scanner
from gateway.policy.guards import Judged, Placeholders, Spot, refusal


@dataclass(frozen=True, slots=True)
class GuardWatch:
    """
    Who is told of scans.

    Attributes:
        took: The guard, and the seconds that it took.
        failed: The request's id, the guard, and why it has nothing to say: a word of ours.
    """

    took: Callable[[GuardName, float], None]
    failed: Callable[[str, GuardName, str], None]


class Guard:
    """
    Has each guard of the key's rules look at the call. Stands in front of what makes copies of it, and of its record.

    Args:
        monotonic_s: The clock of what is told of scans.
        moderation: Who is asked for `moderation`, and gets what would leave: redacted.
    """

    def __init__(
        self,
        scanner: Scanner,
        watch: GuardWatch,
        monotonic_s: Callable[[], float],
        moderation: Adviser | None = None,
    ) -> None:
        self._scanner = scanner
        self._watch = watch
        self._monotonic_s = monotonic_s
        self._moderation = moderation

    def advised(self, moderation: Adviser | None) -> Guard:
        """The same stage, with all that it remembers, and another one to ask."""
        return Guard(self._scanner, self._watch, self._monotonic_s, moderation)

    async def admit(self, exchange: Exchange) -> Answer | None:
        """
        Let *exchange* pass, its call changed where that is the policy. Raises GatewayError: a guard refuses it.

        What fails or is late refuses too where it could have refused or changed something; where it only watches, the
        call goes on, and its verdict says so.
        """
        terms = exchange.key.rules.guards
        if not terms:
            return None
        reading = self._scanner.read(exchange.call, exchange.key.tenant)
        redacted: list[tuple[Judged, GuardTerms]] = []
        for name in _in_order(terms):
            judged = await self._look(exchange, name, reading, terms[name])
            if judged.verdict.status == "redact":
                redacted.append((judged, terms[name]))
        if redacted:
            many = sum([len(judged.counted) for judged, _ in redacted])
            redact = partial(_redact, exchange.call, reading, redacted)
            exchange.call, exchange.originals = await self._scanner.aside(reading.owner, redact, FINDING_BYTES * many)
        if (last := terms.get(MODERATION)) is not None and last.mode != "off":
            reading = self._scanner.read(exchange.call, exchange.key.tenant) if redacted else reading
            await self._look(exchange, MODERATION, reading, last)
        return None

    def settle(self, exchange: Exchange, receipt: Receipt) -> None:
        """Nothing to give back."""

    async def _look(self, exchange: Exchange, name: GuardName, reading: Reading, terms: GuardTerms) -> Judged:
        began_s = self._monotonic_s()
        try:
            judged = await self._judge(exchange, name, reading, terms)
        except ScanFailed as exc:
            exchange.verdicts[name] = Verdict("error")
            self._watch.failed(exchange.request_id, name, exc.reason)
            if terms.mode != "monitor":
                raise GatewayError(GUARDS_UNAVAILABLE) from exc
            return Judged(Verdict("error"))
        finally:
            self._watch.took(name, self._monotonic_s() - began_s)
        place = _place_of(judged, reading)
        exchange.verdicts[name] = structs.replace(judged.verdict, place=place)
        if judged.verdict.status == "block":
            raise refusal(name, judged.verdict, place)
        return judged

    async def _judge(self, exchange: Exchange, name: GuardName, reading: Reading, terms: GuardTerms) -> Judged:
        if name != MODERATION:
            return await self._scanner.look(name, reading, terms)
        if self._moderation is None:
            raise ScanFailed("absent")
        if not self._moderation.may_read(exchange):
            raise ScanFailed("residency")
        return await self._scanner.ask(name, self._moderation, reading, terms)


def _in_order(terms: Mapping[GuardName, GuardTerms]) -> list[GuardName]:
    """The guards that look here, in the order in which verdicts are told."""
    return [name for name in GUARDS if name in terms and name != MODERATION and terms[name].mode != "off"]


def _place_of(judged: Judged, reading: Reading) -> str:
    """Where the first of what counted stands; "" where nothing did."""
    if not judged.counted:
        return ""
    piece, number = judged.counted[0].spot
    return place_in(reading.pieces[piece], reading.heard(piece)[number])


def _redact(
    call: Call, reading: Reading, redacted: Sequence[tuple[Judged, GuardTerms]]
) -> tuple[Call, Mapping[str, str]]:
    """*call* with placeholders, one for each value wherever it stands, and the originals that are to come back."""
    spots: dict[Spot, list[tuple[Finding, bool]]] = {}
    for judged, terms in redacted:
        for one in judged.counted:
            spots.setdefault(one.spot, []).append((one.finding, terms.reversible))
    # A caller that gets originals back never sees placeholders: one that stands in the call is not ours.
    gives_back = any(terms.reversible for _, terms in redacted)
    taken = [placeholders_in(bytes(raw).decode()) for raw in call.fields.values()] if gives_back else ()
    placeholders = Placeholders(frozenset().union(*taken))
    texts: dict[int, dict[int, str]] = {}
    for piece, number in sorted(spots):
        text = reading.heard(piece)[number].text.text
        texts.setdefault(piece, {})[number] = placeholders.redact(text, spots[piece, number])
    changed = {
        reading.pieces[piece].path: said_otherwise(reading.pieces[piece].raw, reading.heard(piece), others)
        for piece, others in texts.items()
    }
    return with_pieces(call, changed), placeholders.originals
