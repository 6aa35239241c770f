"""How much to think, by name: one scale for every dialect that has names for it."""

from __future__ import annotations

from gateway.dialects.neutral import Reasoning

SCALE = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # OpenAI's reference, `reasoning_effort`
# Budgets in tokens up to which an effort is meant. Claude Code's three steps are 4,000, 10,000 and 31,999.
_BUDGETS = ((4_096, "low"), (16_384, "medium"))
_MORE = "high"
_ADAPTIVE = "medium"  # as most vendors' own default


def wanted_effort(asked: Reasoning) -> str | None:
    """The effort that *asked* means; a name that is not on the scale as it is."""
    if asked.mode == "off":
        return "none"
    if asked.mode == "adaptive":
        return _ADAPTIVE
    if asked.effort is not None:
        return asked.effort
    return next((effort for bound, effort in _BUDGETS if (asked.budget_tokens or 0) <= bound), _MORE)


def nearest_effort(wanted: str | None, efforts: tuple[str, ...]) -> str | None:
    """The strongest of *efforts* that is not above *wanted*, else the weakest; None where there is none to choose."""
    if wanted not in SCALE or not efforts:
        return None
    bound = SCALE.index(wanted)
    return next((effort for effort in reversed(efforts) if SCALE.index(effort) <= bound), efforts[0])
