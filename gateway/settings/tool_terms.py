"""What a policy may say of tools: their names, and the arguments of their calls."""



from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.settings import checks
from gateway.settings.fields import setting
from gateway.settings.reader import Reader, beneath, good_rows

_SAYS = frozenset(("allow", "deny", "minimum", "maximum", "required"))


@dataclass(frozen=True, slots=True)
class ArgumentEntry:
    """What the arguments of a tool's calls must be like. What says nothing of them is refused."""

    tool: str = setting("A glob of the names of tools it is for.", check=checks.glob)
    path: str = setting(
        "Members down to the value, joined by dots, as in `order.amount`; `*` for every element of a list or object.",
        check=checks.path,
    )
    allow: tuple[str, ...] | None = setting("Globs, one of which the value has to match.", None, check=checks.globs)
    deny: tuple[str, ...] | None = setting("Globs, none of which the value may match.", None, check=checks.globs)
    minimum: float | None = setting("The least that the number may be.", None, name="min", check=checks.finite)
    maximum: float | None = setting("The most that the number may be.", None, name="max", check=checks.finite)
    required: bool = setting("Whether a call without the value is denied.", default=False)


@dataclass(frozen=True, slots=True)
class ToolsEntry:
    """Which tools may be offered and called, by globs: `*` for any characters, `?` for one."""

    allow: tuple[str, ...] | None = setting(
        "Names, one of which a tool has to match to the letter; any by default.", None, check=checks.globs
    )
    deny: tuple[str, ...] | None = setting(
        "Names, none of which a tool may match, in whatever case.", None, check=checks.globs
    )
    arguments: tuple[ArgumentEntry, ...] | None = setting("Rules for the arguments of calls.", None)


def tool_terms(entry: ToolsEntry | None) -> ToolTerms:
    """What *entry* says of tools."""
    if entry is None:
        return ToolTerms()
    rules = tuple(_rule(rule) for rule in entry.arguments or ())
    return ToolTerms((entry.allow,) if entry.allow is not None else (), entry.deny or (), rules)


def _rule(entry: ArgumentEntry) -> ArgumentRule:
    return ArgumentRule(
        entry.tool,
        entry.path,
        allow=entry.allow,
        deny=entry.deny or (),
        minimum=entry.minimum,
        maximum=entry.maximum,
        required=entry.required,
    )


def check_tools(reader: Reader, place: str, tools: Mapping[str, Any]) -> None:
    """Note rules for arguments that say nothing, or what no number can be."""
    for number, rule in enumerate(good_rows(tools.get("arguments"))):
        here = f"{beneath(place, 'arguments')}[{number}]"
        if rule.keys() >= _SAYS and all(rule[name] in (None, False) for name in _SAYS):
            reader.problem(here, "says nothing of the value: it has no allow, deny, min, max or required")
        least, most = rule.get("minimum"), rule.get("maximum")
        if least is not None and most is not None and least > most:
            reader.problem(f"{here}.min", "is above max, so that no number is allowed")
