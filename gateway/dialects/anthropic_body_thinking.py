"""Thinking and sampling in an Anthropic body: each constrains the other, and the rest of the call both."""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from gateway.dialects.anthropic_body_tools import answers_by_tool
from gateway.dialects.anthropic_body_turns import Conversation
from gateway.dialects.neutral import Notes, Prompt, Reasoning, Target
from gateway.dialects.validate import refuse

MIN_BUDGET = 1_024  # by the API reference, as that a budget has to be less than `max_tokens`
# Each step doubles; "high" is what the vendor's guide suggests to begin hard tasks with. An answer keeps at least half
# of `max_tokens`, whatever stands here.
BUDGETS = {"minimal": 1_024, "low": 4_096, "medium": 8_192, "high": 16_384, "xhigh": 32_768, "max": 65_536}
_EFFORTS = {"minimal": "low"}  # of models that budget by themselves; the other names are the same
_LEAST_TOP_P = 0.95  # while thinking, by the API reference


def write_thinking(
    prompt: Prompt, target: Target, talk: Conversation, max_tokens: int, notes: Notes
) -> tuple[dict[str, Any], str | None]:
    """
    `thinking` and the members of sampling, and the effort for `output_config`.

    Thinking is a wish: where something else in the call rules it out, it is dropped and noted.

    Raises:
        GatewayError: An effort that nobody knows.
    """
    reasoning, name = prompt.reasoning, prompt.names.get("reasoning", "reasoning")
    if reasoning is None:
        return _sampling(prompt, notes), None
    if reasoning.effort is not None and reasoning.effort not in BUDGETS:
        raise refuse(name, f"{name}: the effort must be none, {', '.join(BUDGETS)}.")
    if reasoning.mode == "off":
        notes.translate(name)
        return {"thinking": {"type": "disabled"}, **_sampling(prompt, notes)}, None
    thinking, effort = (
        _adaptive(reasoning) if target.traits.thinking == "adaptive" else (_budgeted(reasoning, max_tokens), None)
    )
    if thinking is None or _ruled_out(prompt, target, talk):
        notes.drop(name)
        return _sampling(prompt, notes), None
    notes.translate(name)
    return {"thinking": thinking, **_sampling_beside_thinking(prompt, notes)}, effort


def _ruled_out(prompt: Prompt, target: Target, talk: Conversation) -> bool:
    """Thinking goes neither with a call that has to be made nor with an answer already begun."""
    forced = prompt.tool_choice is not None and prompt.tool_choice.mode in ("required", "tool")
    forced |= answers_by_tool(prompt)
    unthought = target.traits.thinking == "budget" and talk.resumes_without_thought
    return forced or talk.prefilled or unthought


def _budgeted(reasoning: Reasoning, max_tokens: int) -> dict[str, Any] | None:
    """A budget below *max_tokens*; None where there is no room for the least."""
    wanted = _tokens(reasoning)
    asked_in_tokens = reasoning.budget_tokens is not None and wanted < max_tokens
    room = max_tokens - 1 if asked_in_tokens else max_tokens // 2
    if room < MIN_BUDGET:
        return None
    return {"type": "enabled", "budget_tokens": max(min(wanted, room), MIN_BUDGET)}


def _adaptive(reasoning: Reasoning) -> tuple[dict[str, Any], str | None]:
    """Shown, since whoever asks for reasoning in another dialect is shown it; some models hide it by default."""
    thinking = {"type": "adaptive", "display": "summarized"}
    if reasoning.mode == "adaptive":
        return thinking, None
    wanted = _tokens(reasoning)
    effort = next((name for name, tokens in BUDGETS.items() if tokens >= wanted), "max")
    return thinking, _EFFORTS.get(effort, effort)


def _tokens(reasoning: Reasoning) -> int:
    """The budget asked for, by number or by name; a medium one where nothing was said."""
    return reasoning.budget_tokens or BUDGETS[reasoning.effort or "medium"]


def _sampling(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """Temperatures end at 1; newer models take no `top_p` beside one, and 1 is what none means."""
    kept: dict[str, Any] = {}
    for name, raw in prompt.sampling.items():
        if name in ("temperature", "top_p", "top_k"):
            kept[name] = raw
        else:
            notes.drop(prompt.names.get(name, name))
    if "temperature" in kept and _value(kept["temperature"]) > 1:
        kept["temperature"] = 1
        notes.translate(prompt.names.get("temperature", "temperature"))
    if "top_p" in kept and "temperature" in kept:
        if _value(prompt.sampling["temperature"]) == 1:
            del kept["temperature"]
        else:
            del kept["top_p"]
            notes.drop(prompt.names.get("top_p", "top_p"))
    return kept


def _sampling_beside_thinking(prompt: Prompt, notes: Notes) -> dict[str, Any]:
    """Only a high `top_p` may stand beside thinking; a temperature of 1 is what none means."""
    kept: dict[str, Any] = {}
    for name, raw in prompt.sampling.items():
        if name == "top_p" and _value(raw) >= _LEAST_TOP_P:
            kept[name] = raw
        elif name != "temperature" or _value(raw) != 1:
            notes.drop(prompt.names.get(name, name))
    return kept


def _value(literal: Raw) -> float:
    return float(bytes(literal))
