"""Commands that take text alone: an argument that is none is refused before anything is looked for by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click


class TextCommand(click.Command):
    """Refuses arguments that are no UTF-8, which Python hands over with surrogates; names of files may be any bytes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            if not isinstance(parameter.type, click.Path) and not all(map(_is_text, _words(ctx, parameter))):
                raise click.BadParameter("this is no UTF-8 text", ctx, parameter)
        return rest


class TextGroup(click.Group):
    """A group whose commands, and those of its groups, are `TextCommand`s."""

    command_class = TextCommand
    group_class = type


def _words(ctx: click.Context, parameter: click.Parameter) -> Iterable[Any]:
    value = ctx.params.get(parameter.name or "")
    return value if isinstance(value, tuple) else (value,)


def _is_text(value: object) -> bool:
    return not isinstance(value, str) or not any("\ud800" <= char <= "\udfff" for char in value)
