"""The calls that customers make, each by its number and the seed alone: an offending one can be made again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.support.gateway import CHAT

from .script import Script, count_prompt
from .world import MODELS, NARROW, OPEN, Customer, Model

How = Literal["fin", "rst"]
Phase = Literal["queued", "waiting", "head", "token", "last", "terminator"]
Bad = Literal["json", "model", "key", "type", "route"]

_FILLER = "You answer in one short sentence and say nothing that you do not know for certain. "
_SESSIONS = 40  # names, the same ones for every tenant
# Of a hundred calls (issue, proof): so many leave, are cut by the provider, are refused by it at first.
_LEAVE, _CUT, _REFUSED, _BAD, _NAMED, _LONG = 15, 5, 4, 3, 8, 1
_PHASES: dict[Phase, int] = {"queued": 2, "waiting": 4, "head": 2, "token": 5, "last": 2, "terminator": 1}
_CUTS = ("drop", "mid1", "mid4", "fin", "use", "end")
_REFUSALS = (("s429", "ok"), ("s503", "ok"), ("s500", "ok"), ("s500",), ("s529", "mid2"), ("drop", "ok"))
MARGIN = 9  # tokens that a provider's template adds to a prompt, at the most
_BADS: tuple[Bad, ...] = ("json", "model", "key", "type", "route")


@dataclass(frozen=True, slots=True)
class Leave:
    """When and how a customer goes before the end: `ms` for `waiting`, a number of tokens for `token`."""

    phase: Phase
    how: How
    ms: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Visit:
    """
    One call.

    Attributes:
        name: Its idempotency key; such a call is sent twice, with `twice_ms` between.
        fresh: On a connection of its own.
        max_tokens: What it asks for at the most; None for a little more than it gets.
    """

    number: int
    customer: Customer
    model: Model
    script: Script
    stream: bool
    leave: Leave | None = None
    bad: Bad | None = None
    session_id: str | None = None
    name: str | None = None
    twice_ms: int = 0
    fresh: bool = False
    filler: int = 1
    max_tokens: int | None = None

    @property
    def marker(self) -> str:
        return self.script.marker

    def texts(self) -> list[str]:
        """The prompt."""
        return [_FILLER * self.filler, self.script.note()]

    def request(self, port: int) -> bytes:
        """The whole HTTP request."""
        body = self._body()
        path = self.model.path + ("/nowhere" if self.bad == "route" else "")
        headers = [
            f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "User-Agent: soak", "Content-Type: application/json",
            f"Authorization: Bearer {self.customer.secret}{'x' if self.bad == 'key' else ''}",
            f"Content-Length: {len(body)}", "anthropic-version: 2023-06-01",
        ]  # fmt: skip
        headers += [f"anoman-session-id: {self.session_id}"] if self.session_id else []
        headers += [f"Idempotency-Key: {self.name}"] if self.name else []
        return "\r\n".join(headers).encode() + b"\r\n\r\n" + body

    def _body(self) -> bytes:
        system, note = self.texts()
        most = self.max_tokens or round(self.script.tokens * 1.3) + 2  # the dearest family counts 1.2 for one
        body: dict[str, Any] = {"model": self.model.slug, "max_tokens": most, "stream": self.stream}
        user = {"role": "user", "content": note}
        if self.model.path == CHAT:
            body |= {"messages": [{"role": "system", "content": system}, user], "user": self.marker}
        else:
            body |= {"system": system, "messages": [user], "metadata": {"user_id": self.marker}}
        if self.bad == "model":
            body["model"] = "no-such-model"
        elif self.bad == "type":
            body["messages"] = "none"
        encoded = json.dumps(body, separators=(",", ":")).encode()
        return encoded[:-1] if self.bad == "json" else encoded


def visits(seed: int, count: int, keys: Sequence[Customer], first: int = 0) -> Iterator[Visit]:
    """Calls number *first* and on, *count* of them."""
    for number in range(first, first + count):
        yield visit(seed, number, keys)


def smooth_visits(seed: int, count: int, keys: Sequence[Customer], first: int = 0) -> Iterator[Visit]:
    """The same, but none that goes wrong, leaves or is sent twice, and no long ones."""
    for one in visits(seed, count, keys, first):
        script = replace(one.script, tokens=min(one.script.tokens, 8), interval_ms=0, wait_ms=0, acts=("ok",))
        yield _priced(replace(one, script=script, leave=None, bad=None, name=None), random.Random(one.number))


def visit(seed: int, number: int, keys: Sequence[Customer]) -> Visit:
    """The call with this *number*."""
    dice = random.Random(f"{seed}/{number}")
    # Half of them have no limits: what a soak is about is what they cost.
    open_keys = [key for key in keys if key.tier == OPEN]
    customer = dice.choice(open_keys if dice.random() < 0.5 else keys)
    model, stream = dice.choice(MODELS), dice.random() < 0.55
    one = Visit(
        number=number,
        customer=customer,
        model=model,
        script=_script(seed, number, model, dice, is_long=customer.tier == NARROW),
        stream=stream,
        session_id=f"session-{dice.randrange(_SESSIONS)}" if dice.random() < 0.6 else None,
        fresh=dice.random() < 0.1,
        filler=dice.choice((1, 1, 1, 2, 8)),
    )
    return _priced(_with_fate(one, dice), dice)


def _script(seed: int, number: int, model: Model, dice: random.Random, *, is_long: bool) -> Script:
    marker = f"s{seed}-{number:06}"
    if is_long or dice.random() * 100 < _LONG:
        return Script(marker, dice.randint(20, 60), dice.choice((10, 20)), percent=model.percent)
    interval_ms, wait_ms = dice.choice((0, 0, 1, 3, 8)), dice.choice((0, 0, 5, 20))
    return Script(marker, dice.randint(1, 16), interval_ms, wait_ms, percent=model.percent)


def _with_fate(one: Visit, dice: random.Random) -> Visit:
    """What goes wrong with it, if anything does."""
    fate, script = dice.random() * 100, one.script
    if (fate := fate - _LEAVE) < 0:
        phase = dice.choices(list(_PHASES), list(_PHASES.values()))[0]
        leave = Leave(phase, dice.choice(("fin", "rst")), dice.randint(1, 40), dice.randint(1, script.tokens))
        return replace(one, leave=leave)
    if (fate := fate - _CUT) < 0:
        return replace(one, script=replace(script, acts=(dice.choice(_CUTS),)))
    if (fate := fate - _REFUSED) < 0:
        return replace(one, script=replace(script, acts=dice.choice(_REFUSALS)))
    if (fate := fate - _BAD) < 0:
        return replace(one, bad=dice.choice(_BADS))
    if fate - _NAMED < 0:
        return replace(one, name=f"name-{one.number}", twice_ms=dice.choice((0, 5, 500)))
    return one


def _priced(one: Visit, dice: random.Random) -> Visit:
    """With a prompt's count that is a little above every estimate of it, as templates of providers make it."""
    prompt = count_prompt(one.texts(), one.model.percent) + dice.randint(1, MARGIN)
    cached = dice.randint(1, prompt) if dice.random() < 0.2 else 0
    return replace(one, script=replace(one.script, prompt=prompt, cached=cached))
