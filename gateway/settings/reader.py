"""Turns what was written into sections, and collects every problem instead of stopping at the first."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_origin

import msgspec

from gateway.settings import checks
from gateway.settings.fields import Rule, Secret, in_words, later_of, rules_of, shown, variable_of, written

T = TypeVar("T")

_BARE_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# What is written otherwise may be the key itself, put there by mistake, and is not repeated.
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,99}")
_MAX_SECRET_FILE_BYTES = 64 * 1024  # a guard against naming a wrong file; keys have some hundred bytes
_UNKNOWN = "there is no such setting"
LATER = "belongs to a later version; this one would not enforce it, so it refuses it: remove it"


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was found. `lax`: it came as text, so "8080" is a number. `origin` is shown by `describe`."""

    value: object
    place: str
    lax: bool = False
    origin: str = "file"


@dataclass(frozen=True, slots=True)
class Broken:
    """A section with problems, or a value with one. `good`: what has none, by attribute, defaults included."""

    good: Mapping[str, Any] = field(default_factory=dict)


def good(section: object) -> Mapping[str, Any]:
    """The values of *section* that relations can be checked on: all of them, or those without a problem."""
    if isinstance(section, Broken):
        return section.good
    return {rule.attribute: getattr(section, rule.attribute) for rule in rules_of(type(section)).values()}


def good_rows(rows: object) -> list[Mapping[str, Any]]:
    """As `good`, of each of a list of tables; none where there is no list."""
    return [good(row) for row in rows] if isinstance(rows, tuple) else []


class Reader:
    """Reads sections by their dataclasses.

    Args:
        environ: Where `{ env = "NAME" }` looks.
        folder: What `{ file = "path" }` is relative to.
    """

    def __init__(self, environ: Mapping[str, str], folder: Path) -> None:
        self.problems: list[str] = []
        self._environ = environ
        self._folder = folder

    def problem(self, place: str, text: str) -> None:
        """Note that something is wrong at *place*."""
        self.problems.append(f"{place}: {text}")

    def table(self, cls: type[T], value: object, place: str) -> T | Broken:
        """The section *cls* written as the TOML table *value*, or what is good of it."""
        if not isinstance(value, Mapping):
            self.problem(place, f"{shown(value)} is not a table")
            return Broken()
        given = {str(name): Given(item, beneath(place, str(name))) for name, item in value.items()}
        return self.section(cls, given, place)

    def section(self, cls: type[T], given: Mapping[str, Given], place: str) -> T | Broken:
        """The section *cls* from single values, or what is good of it."""
        before = len(self.problems)
        rules = rules_of(cls)
        for name, item in given.items():
            if name in later_of(cls):
                self._later(item, later_of(cls)[name])
            elif name not in rules:
                self._unknown_in(place, name, item, rules)
        values: dict[str, object] = {}
        for name, rule in rules.items():
            if name in given:
                values[rule.attribute] = self._value(rule, given[name])
            elif rule.required:
                self.problem(beneath(place, name), f"is missing ({rule.description})")
            else:
                values[rule.attribute] = rule.default
        if len(self.problems) == before:
            return cls(**values)
        return Broken({name: value for name, value in values.items() if not isinstance(value, Broken)})

    def _later(self, item: Given, only: object) -> None:
        """Note that *item* is for a later version, unless it says no more than what this one does anyway."""
        if only is None:
            self.problem(item.place, LATER)
        elif type(item.value) is not type(only) or item.value != only:
            said = shown(item.value)
            self.problem(item.place, f"{said} is for a later version; in this one: only {written(only)}")

    def unknown(self, place: str, name: str, known: Iterable[str], spelled: Callable[[str], str] = str) -> None:
        """Note that there is no setting *name*, and which one may be meant, *spelled* as it is where it was written."""
        near = _near(name, known)
        self.problem(place, f"{_UNKNOWN}; did you mean {spelled(near[0])}?" if near else _UNKNOWN)

    def _unknown_in(self, place: str, name: str, item: Given, known: Iterable[str]) -> None:
        """As `unknown`. A table in an entry that users name is most likely the end of a name with a dot."""
        is_key = place.startswith("keys.")
        if isinstance(item.value, Mapping) and "." in place and (is_key or not _near(name, known)):
            # What follows the dot of a key is a part of the secret.
            here = place if is_key else item.place
            self.problem(here, f"{_UNKNOWN} (quote names that have a dot)")
        else:
            variable = partial(variable_of, place)
            self.unknown(item.place, name, known, variable if item.place.startswith(variable("")) else str)

    def checked(self, check: Any, value: str, place: str) -> None:
        """Apply *check* to a name that users chose."""
        try:
            check(value)
        except ValueError as exc:
            self.problem(place, f"the name is {exc}")

    def _value(self, rule: Rule, given: Given) -> object:
        """What the dataclass is to hold, or `Broken`; a list of tables may hold both."""
        written = rule.written
        if written is Secret:
            return self._secret(given)
        if dataclasses.is_dataclass(written):
            return self.table(cast("type[Any]", written), given.value, given.place)
        if get_origin(written) is tuple and dataclasses.is_dataclass(get_args(written)[0]):
            return self._rows(get_args(written)[0], given)
        return self._plain(rule, given)

    def _plain(self, rule: Rule, given: Given) -> object:
        said = "the value" if rule.secret else shown(given.value)
        try:
            value = msgspec.convert(given.value, rule.written, strict=not given.lax)
        except msgspec.ValidationError:
            self.problem(given.place, f"{said} is not {in_words(rule.written)}")
            return Broken()
        # Written so that NaN, which compares false with everything, is refused.
        if rule.low is not None and rule.high is not None and not rule.low <= value <= rule.high:
            self.problem(given.place, f"{said} is not within {rule.bounds}")
            return Broken()
        if rule.check is None:
            return cast("object", value)
        try:
            return cast("object", rule.check(value))
        except ValueError as exc:
            # The money parsers name the value themselves; the checks of this package never do.
            text = str(exc)
            self.problem(given.place, text if text.startswith(repr(value)) else f"{said} is {text}")
            return Broken()

    def _rows(self, cls: type[Any], given: Given) -> tuple[Any, ...] | Broken:
        if not isinstance(given.value, list) or not given.value:
            self.problem(given.place, "must be a list of at least one table")
            return Broken()
        return tuple(self.table(cls, item, f"{given.place}[{number}]") for number, item in enumerate(given.value))

    def _secret(self, given: Given) -> Secret | Broken:
        try:
            return checks.credential(self._secret_text(given.value))
        except ValueError as exc:
            self.problem(given.place, f"the key is {exc}")
        except LookupError as exc:
            self.problem(given.place, str(exc.args[0]))
        return Broken()

    def _secret_text(self, value: object) -> str:
        """The text of a key in one of its three forms. LookupError says what could not be found."""
        match value:
            case str():
                return value
            case {"env": str(name), **rest} if not rest:
                if not self._environ.get(name):
                    known = name if _VARIABLE.fullmatch(name) else "that env names"
                    raise LookupError(f"the environment variable {known} is not set")
                return self._environ[name].strip()
            case {"file": str(path), **rest} if not rest:
                return self._secret_file(path)
        raise LookupError('must be text, { env = "NAME" } or { file = "path" }')

    def _secret_file(self, path: str) -> str:
        try:
            with (self._folder / path).open("rb") as file:
                data = file.read(_MAX_SECRET_FILE_BYTES + 1)
            if len(data) > _MAX_SECRET_FILE_BYTES:
                raise LookupError("the file is too large to hold a key")
            return data.decode("ascii").strip()
        except (OSError, ValueError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "not plain text"
            raise LookupError(f"the file cannot be read: {reason}") from exc


def _near(name: str, known: Iterable[str]) -> list[str]:
    """The one of *known* that *name* is most likely to mean, if any."""
    return difflib.get_close_matches(name.lower(), list(known), n=1)


def beneath(place: str, name: str) -> str:
    """The place of *name* in the table at *place*, as in `models."gpt-4o".price`."""
    part = name if _BARE_KEY.fullmatch(name) else shown(name)
    return f"{place}.{part}" if place else part


def key_place(number: int) -> str:
    """How the *number*th key of the file is named where its secret must not be."""
    return f"keys.(number {number})"
