"""How a setting is declared: a dataclass field with a sentence, bounds and a check beside it.

The same declaration validates the value, names its environment variable and fills the table in `docs/settings.md`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, Union, get_args, get_origin

from gateway.core.money import Weight


class Secret:
    """A text that shows itself to nobody but the caller of `reveal`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


DecimalText = typing.NewType("DecimalText", str)  # never a TOML float: binary fractions would change a price

DateText = typing.NewType("DateText", str)  # text, as the documents have it, not a TOML date

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    DecimalText: 'a decimal as text, such as "2.50"',
    DateText: 'a day as text, such as "2026-03-13"',
    Secret: "text or a table",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What is known of one setting.

    Attributes:
        attribute: Its name in the dataclass; `name` is the one that users write.
        written: The type it is written in, before `check` turns it into what the dataclass holds.
        check: From the written value to the held one; raises ValueError with a phrase that follows "is".
        render: From the held value to what tables show, where that is not how `written` would put it.
        secret: It may hold a password: it is left out of `repr` and problems do not repeat it.
    """

    attribute: str
    name: str
    written: Any
    description: str
    required: bool
    default: object
    low: float | None
    high: float | None
    check: Callable[[Any], Any] | None
    render: Callable[[Any], str] | None
    secret: bool

    @property
    def bounds(self) -> str:
        """As in "0.1 to 600"; empty where there are none."""
        return "" if self.low is None or self.high is None else f"{self.low} to {self.high}"


def setting(
    description: str,
    default: object = dataclasses.MISSING,
    *,
    factory: Any = dataclasses.MISSING,
    bounds: tuple[float, float] | None = None,
    name: str | None = None,
    written: Any = None,
    check: Callable[[Any], Any] | None = None,
    render: Callable[[Any], str] | None = None,
    secret: bool = False,
) -> Any:
    """A dataclass field that is a setting; see `Rule`. Without *default* and *factory* the setting is required."""
    metadata = {
        "description": description,
        "bounds": bounds,
        "name": name,
        "written": written,
        "check": check,
        "render": render,
        "secret": secret,
    }
    return dataclasses.field(default=default, default_factory=factory, repr=not secret, metadata=metadata)


_RULES: dict[type[Any], Mapping[str, Rule]] = {}  # reading them takes 0.1 ms, and the shipped models have 500 tables


def rules_of(section: type[Any]) -> Mapping[str, Rule]:
    """The settings of a section's dataclass by the name that users write, in order."""
    found = _RULES.get(section)
    if found is None:
        found = _RULES[section] = _read_rules(section)
    return found


def _read_rules(section: type[Any]) -> dict[str, Rule]:
    hints = typing.get_type_hints(section)
    rules = {}
    for field in dataclasses.fields(section):
        said = field.metadata
        low, high = said["bounds"] or (None, None)
        name = said["name"] or field.name
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        rules[name] = Rule(
            attribute=field.name,
            name=name,
            written=said["written"] or bare(hints[field.name]),
            description=said["description"],
            required=default is dataclasses.MISSING,
            default=None if default is dataclasses.MISSING else default,
            low=low,
            high=high,
            check=said["check"],
            render=said["render"],
            secret=said["secret"],
        )
    return rules


def later_of(section: type[Any]) -> Mapping[str, object]:
    """Names in *section* that this version does not act on, each with the only value it may have; None: none."""
    names: Mapping[str, object] = getattr(section, "LATER", {})
    return names


def bare(hint: Any) -> Any:
    """*hint* without `| None`: a setting that may be left out is never written as null."""
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (member for member in get_args(hint) if member is not type(None))
    return hint


def in_words(hint: Any) -> str:
    """*hint* as a phrase, for problems and tables."""
    if get_origin(hint) is Literal:
        return f"one of {_choices(hint)}"
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        if inner is str:
            return "a list of texts"
        return "a list of tables" if dataclasses.is_dataclass(inner) else f"a list of {_choices(inner)}"
    if dataclasses.is_dataclass(hint):
        return "a table"
    return _WORDS[hint]


def _choices(hint: Any) -> str:
    return ", ".join(f'"{choice}"' for choice in get_args(hint))


def variable_of(section: str, name: str) -> str:
    """The environment variable of a setting of a scalar section."""
    return f"GATEWAY_{section}_{name}".upper()


def shown(value: object) -> str:
    """*value* as a user writes it, cut to a length that fits a line."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    if isinstance(value, str):
        text = f'"{value}"' if value.isprintable() else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def written(value: object) -> str:
    """*value* as it stands in a TOML file."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value).removesuffix(".0")
        case Weight():
            return f'"{decimal_text(Decimal(value.numerator) / value.denominator)}"'
        case tuple():
            return f"[{', '.join(written(item) for item in value)}]"
        case Secret():
            return '"***"'
        case _:
            return f'"{value}"'


def decimal_text(value: Decimal) -> str:
    """*value* without an exponent and without zeros at its end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
