"""What fields of tenants and keys may hold, by whatever way they came."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.core.accounts import BadTerms, Budget, Right
from gateway.core.unshown import UNSHOWN

MAX_NAME_CHARS = 200
MAX_MODELS = 100
MAX_BUDGETS = 16  # each is counted with every call: four periods for each scope are twelve
MAX_MS = 253_402_300_800_000  # the year 10000
SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,127}")  # what models are called
MODEL = re.compile(rf"(?:{SLUG.pattern})?\*?(?<=.)")  # one, or with * at its end for any rest
# What tenants, tiers, policies and providers are named by; no other text is looked for in a database.
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NO_LABEL = "not a name of at most 64 letters, digits, dots, dashes and underscores"
_UNCLEAN = re.compile(f"[{UNSHOWN}]")

Problems = list[tuple[str, str]]


def check_fields(fields: Mapping[str, Any], now_ms: int) -> None:
    """
    See that those of *fields* that are checked here make sense; others are passed over.

    Raises:
        BadTerms: Some do not.
    """
    problems: Problems = []
    for name, check in _CHECKS.items():
        if fields.get(name) is not None:
            problems += check(fields[name])
    expires_ms = fields.get("expires_ms")
    if expires_ms is not None and not now_ms < expires_ms < MAX_MS:
        problems.append(("expires_ms", "has passed, or is after the year 9999"))
    if problems:
        raise BadTerms(problems)


def _name(name: str) -> Problems:
    if len(name) > MAX_NAME_CHARS or _UNCLEAN.search(name):
        return [("name", f"is longer than {MAX_NAME_CHARS} characters, or has some that cannot be shown")]
    return []


def _label(field: str) -> Callable[[str], Problems]:
    def check(label: str) -> Problems:
        if LABEL.fullmatch(label) is None:
            return [(field, f"is {NO_LABEL}")]
        return []

    return check


def _models(models: tuple[str, ...]) -> Problems:
    if not 1 <= len(models) <= MAX_MODELS:
        return [("models", f"is not a list of 1 to {MAX_MODELS}")]
    wrong = (place for place, model in enumerate(models) if MODEL.fullmatch(model) is None)
    return [(f"models[{place}]", "is not a model's name, with * at its end for any rest") for place in wrong]


def _budgets(budgets: Iterable[Budget]) -> Problems:
    named = [(budget.scope, budget.period) for budget in budgets]
    if len(named) > MAX_BUDGETS:
        return [("budgets", f"are more than {MAX_BUDGETS}")]
    twice = [place for place, pair in enumerate(named) if pair in named[:place]]
    return [(f"budgets[{place}]", "is there twice: one of a scope and a period") for place in twice]


def _rights(rights: tuple[Right, ...]) -> Problems:
    kinds = {right == "inference" for right in rights}
    if len(kinds) != 1 or len(set(rights)) != len(rights):
        return [("rights", "are `inference` alone, or one or more of `read`, `manage` and `operate`")]
    return []


_CHECKS: Mapping[str, Callable[[Any], Problems]] = {
    "name": _name,
    "models": _models,
    "budgets": _budgets,
    "rights": _rights,
    **{field: _label(field) for field in ("tenant", "tier", "policy")},
}
