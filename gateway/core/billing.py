"""
Who pays for what, by how an exchange and its attempts ended: the policy as data.

`CHARGES` is what the customer pays, `COSTS` what a provider is taken to bill for an attempt that has reached it. A row
of the ledger follows from these tables, the usage, and the price that was pinned at admission.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gateway.core.booking import AttemptResult
from gateway.core.exchange import Outcome
from gateway.core.usage import NO_USAGE, Basis, Usage

Charge = Literal["usage", "what_came", "nothing"]
Cost = Literal["usage", "prompt", "nothing"]

CHARGES: Mapping[Outcome, Charge] = {
    "completed": "usage",
    "cancelled": "usage",  # the prompt, once a provider has it, and what had been received
    "interrupted": "what_came",  # nothing before the first token, whoever broke off: a provider, or a process of ours
    "rejected": "nothing",
    "failed": "nothing",
}

COSTS: Mapping[AttemptResult, Cost] = {
    "ok": "usage",
    "cancelled": "prompt",
    "open": "prompt",
    "failed": "prompt",
}

# How an attempt failed that nobody bills: the provider said so in place of an answer, or was not even reached.
UNBILLED = ("callers_fault", "credential", "in_band", "no_such_model", "no_slot", "protocol", "redirect", "stale")
_UNBILLED_STATUS = "status_"


def is_charged(outcome: Outcome, usage: Usage, *, bill_interrupted: bool) -> bool:
    """
    Whether the customer pays for *usage*.

    Args:
        bill_interrupted: Whether what came of an answer that broke is paid for.
    """
    charge = CHARGES[outcome]
    return charge == "usage" or (charge == "what_came" and bill_interrupted and usage.completion_tokens > 0)


def billed(result: AttemptResult, reason: str | None, prompt_tokens: int) -> tuple[Usage, Basis]:
    """
    What a provider bills for an attempt of whose answer nothing was counted, and how that is known.

    Args:
        reason: Why it failed; None where it did not.
        prompt_tokens: Of the prompt that it got.
    """
    if COSTS[result] != "prompt" or (reason is not None and reason.startswith((_UNBILLED_STATUS, *UNBILLED))):
        return NO_USAGE, "none"
    return Usage(prompt_tokens=prompt_tokens), "estimated"
