"""What a policy may say, in the file and in the database, and the rules that it becomes.

A policy that named a guard which this version has no engine for would be a lie to the operator, so it is refused.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field, as `dataclasses.field` does

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gateway.core.guarding import (
    ANSWER_GUARDS,
    DEADLINE_S,
    GUARDS,
    HOLD_CHARS,
    HOLD_S,
    MODERATION,
    RESPONSE_CONTENT,
    AnswerGuard,
    AnswerTerms,
    GuardMode,
    GuardName,
    GuardTerms,
    Rules,
)
from gateway.guards.table import ENGINES, KINDS
from gateway.settings import checks
from gateway.settings.call_terms import CallsEntry, terms_of
from gateway.settings.fields import setting
from gateway.settings.reader import LATER, Reader, beneath, good
from gateway.settings.tool_terms import ToolsEntry, check_tools, tool_terms


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardEntry:
    """What is the same for all guards."""

    threshold: float | None = setting(
        "The score, from 0 to 1, from which on a finding counts; the guard's own by default.", None, bounds=(0, 1)
    )
    kinds: tuple[str, ...] | None = setting(
        "The only kinds of findings that count; all by default.", None, check=checks.kinds
    )
    deadline_ms: int = setting(
        "Milliseconds for all texts of a call. A call that has to pass the guard is refused when they are over, and "
        "one that is only watched goes on.",
        int(DEADLINE_S * 1000),
        bounds=(1, 10_000),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeGuardEntry(_GuardEntry):
    """A guard that judges a call as a whole."""

    mode: Literal["off", "monitor", "block"] = setting(
        "`block` refuses the call, `monitor` only says what was found, `off` does not look."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceGuardEntry(_GuardEntry):
    """A guard whose findings are pieces of a text."""

    mode: GuardMode = setting(
        "`block` refuses the call, `redact` sends a placeholder such as `[NIK_1]` in the place of each piece, "
        "`monitor` only says what was found, `off` does not look."
    )
    reversible: bool = setting(
        "With `redact`: whether the caller gets the original back where the answer has its placeholder.", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGuardEntry:
    """Guards of answers, whole ones and streams."""

    mode: GuardMode = setting(
        "`block` ends the answer in front of what is found, `redact` puts a placeholder in its place where a guard can "
        "(others block), `monitor` only says what was found, `off` does not look."
    )
    guards: tuple[AnswerGuard, ...] = setting(
        "The guards that look; thresholds and kinds are theirs.", ANSWER_GUARDS, check=checks.some
    )
    hold_chars: int = setting(
        "The most characters of a stream that are held back at a time, while nothing is found in them.",
        HOLD_CHARS,
        bounds=(16, 4096),
    )
    hold_ms: int = setting(
        "Milliseconds of silence after which words that are held back leave, but for what could be half a value.",
        int(HOLD_S * 1000),
        bounds=(1, 10_000),
    )


@dataclass(frozen=True, slots=True)
class GuardrailsEntry:
    """The guards that calls have to pass; one that is left out does not look."""

    injection: WholeGuardEntry | None = setting("Instructions that try to take the model over.", None)
    pii: PieceGuardEntry | None = setting("Personal data: numbers of persons, phones, cards, addresses.", None)
    content: WholeGuardEntry | None = setting("Violence, self-harm, hate and the like.", None)
    credentials: PieceGuardEntry | None = setting("Keys, tokens and passwords of machines.", None)
    response_content: AnswerGuardEntry | None = setting(
        "What answers say ([guardrails-answers.md](guardrails-answers.md)).", None
    )
    moderation: WholeGuardEntry | None = setting("What the provider of `[moderation]` finds in what would leave.", None)


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """What calls may hold."""

    guardrails: GuardrailsEntry | None = setting("What is looked for in calls ([guardrails.md](guardrails.md)).", None)
    calls: CallsEntry | None = setting("What calls may ask for.", None)
    tools: ToolsEntry | None = setting("Which tools may be offered and called ([policies.md](policies.md)).", None)


def rules_of_policy(policy: PolicyEntry) -> Rules:
    """What *policy* asks of calls."""
    guards: dict[GuardName, GuardTerms] = {}
    for name in GUARDS:
        entry = getattr(policy.guardrails, name, None)  # of no table, and of a guard that is for later
        if entry is not None and entry.mode != "off":
            guards[name] = GuardTerms(
                entry.mode,
                entry.threshold,
                frozenset(entry.kinds) if entry.kinds is not None else None,
                getattr(entry, "reversible", False),
                entry.deadline_ms / 1000,
            )
    answers = policy.guardrails.response_content if policy.guardrails is not None else None
    return Rules(guards, _answers(answers), tool_terms(policy.tools), terms_of(policy.calls))


def _answers(entry: AnswerGuardEntry | None) -> AnswerTerms:
    if entry is None:
        return AnswerTerms()
    return AnswerTerms(entry.mode, frozenset(entry.guards), entry.hold_chars, entry.hold_ms / 1000)


def check_policy(reader: Reader, place: str, policy: object, *, moderates: bool) -> None:
    """
    Note what *policy*, which may be `Broken`, asks of guards that there are none of, or that do not do it.

    Args:
        moderates: Whether there is a provider to be asked.
    """
    for name, entry in _guards(good(policy)):
        here, is_on = beneath(beneath(place, "guardrails"), name), entry.get("mode", "off") != "off"
        wanted = entry.get("guards", AnswerTerms().guards) if name == RESPONSE_CONTENT else (name,)
        if is_on and name == MODERATION and not moderates:
            reader.problem(here, "needs a provider to ask; moderation.provider is not set")
        elif is_on and name != MODERATION and any(guard not in ENGINES for guard in wanted):
            reader.problem(here, LATER)
        if name in KINDS and (unknown := [kind for kind in entry.get("kinds") or () if kind not in KINDS[name]]):
            known = ", ".join(KINDS[name])
            reader.problem(f"{here}.kinds", f"there is no kind {', '.join(unknown)}; there are: {known}")
        if entry.get("reversible") and entry.get("mode", "redact") != "redact":
            reader.problem(f"{here}.reversible", 'is for the mode "redact" alone')
    if (tools := good(policy).get("tools")) is not None:
        check_tools(reader, beneath(place, "tools"), good(tools))


def _guards(policy: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    guardrails = policy.get("guardrails")
    if guardrails is not None:
        for name, entry in good(guardrails).items():
            if entry is not None:
                yield name, good(entry)
