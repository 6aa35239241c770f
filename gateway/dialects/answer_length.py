"""How long an answer may get, by what a call says of it: for what it may cost at worst."""

from __future__ import annotations

from gateway.core.call import Call
from gateway.wire.values import decode_values

_LIMITS = ("max_tokens", "max_completion_tokens")  # of either dialect
_CHOICES = "n"  # answers at once, in OpenAI's


def answer_bound(call: Call) -> int | None:
    """
    Tokens that each answer to *call* has at most, by its own words; None where it does not say.

    Of two limits the larger counts: a provider that gets both goes by either.
    """
    return max(_bounds(call).values(), default=None)


def bound_name(call: Call) -> str:
    """The member by which *call* bounds its answers, or would."""
    bounds = _bounds(call)
    return max(bounds, key=bounds.__getitem__, default=_LIMITS[0])


def limits_said(call: Call) -> dict[str, int | None]:
    """Every limit that *call* sets its answers, by member; None for one whose value is not plainly a number."""
    given = {name: call.fields[name] for name in _LIMITS if name in call.fields}
    return {name: _number(call, name) for name, raw in given.items() if bytes(raw) != b"null"}


def answers_asked(call: Call) -> int:
    """How many answers *call* asks for."""
    return _number(call, _CHOICES) or 1


def _bounds(call: Call) -> dict[str, int]:
    return {name: number for name in _LIMITS if (number := _number(call, name)) is not None}


def _number(call: Call, name: str) -> int | None:
    raw = call.fields.get(name)
    if raw is None:
        return None
    value = decode_values(raw)
    return value if isinstance(value, int) and value > 0 else None
