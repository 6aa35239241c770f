"""What options of several commands have in common: names, budgets, points in time, and printing JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import click

from gateway.commands.stored import now_ms
from gateway.core.accounts import Budget, Period, Scope
from gateway.core.money import parse_nano
from gateway.settings.checks import label

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
_FORM = 'as in "month=50.00" or "session:total=0.50"'


def as_label(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """A callback: *value*, if things may be called so."""
    try:
        return label(value)
    except ValueError as exc:
        raise click.BadParameter(f"it is {exc}") from None


def print_view(view: dict[str, Any]) -> None:
    """*view* as a line of JSON."""
    click.echo(json.dumps(view))


class BudgetType(click.ParamType[Budget]):
    """`[SCOPE:]PERIOD=USD`.

    Args:
        default: The scope of one that names none.
    """

    name = "[SCOPE:]PERIOD=USD"

    def __init__(self, default: Scope, scopes: tuple[Scope, ...]) -> None:
        self._default = default
        self._scopes = scopes

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Budget:
        if isinstance(value, Budget):
            return value
        where, _, amount = str(value).partition("=")
        scope, _, period = where.rpartition(":")
        scopes: dict[str, Scope] = {"": self._default, **{name: name for name in self._scopes}}
        periods: dict[str, Period] = {name: name for name in get_args(Period)}
        if period not in periods or scope not in scopes:
            known = f"scopes: {', '.join(self._scopes)}; periods: {', '.join(periods)}"
            self.fail(f"{value!r} is no budget, {_FORM}; {known}", param, ctx)
        try:
            limit_nano_usd = parse_nano(amount)
        except ValueError as exc:
            self.fail(f"{amount!r}: {exc}", param, ctx)
        return Budget(scopes[scope], periods[period], limit_nano_usd)


class MomentType(click.ParamType[int]):
    """A point in time as epoch milliseconds: an ISO date or time, or a span from now, as in `90d`.

    Args:
        read: What makes it of the text and of now, see `wire.moments`.
    """

    name = "TIME"

    def __init__(self, read: Callable[[str, int], int]) -> None:
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return self._read(str(value), now_ms())
        except ValueError as exc:
            self.fail(f"{value!r}: {exc}", param, ctx)
