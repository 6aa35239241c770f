"""The settings in force as text, secrets masked."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.core.money import Weight
from gateway.settings.catalog import key_id
from gateway.settings.entries import SHIPPED_TIERS
from gateway.settings.fields import rules_of, written
from gateway.settings.loading import Settings, SettingsError
from gateway.settings.reader import beneath
from gateway.settings.sections import SCALAR_SECTIONS
from gateway.settings.shipped import shipped_models

_MEMBER = re.compile(r"\w+")  # of a place such as `models."gpt-4o".price.input`, behind the model's name


@dataclass(frozen=True, slots=True)
class Row:
    """One setting: its place, its value as it would be written in the file, where it came from ("default", ...)."""

    name: str
    value: str
    origin: str


def describe(settings: Settings) -> list[Row]:
    """Every setting in force, in the order of the documentation. Passwords and keys are masked.

    Of the models those that the file has something to say of: `models` lists the others.
    """
    rows = []
    for section in (*SCALAR_SECTIONS, "metering"):
        for name, value in _flat(section, getattr(settings, section)):
            rows.append(Row(name, value, settings.origins.get(name, "default")))
    for section in ("providers", "models", "tiers", "policies"):
        for entry_name, entry in getattr(settings, section).items():
            place = beneath(section, entry_name)
            if section == "models":
                rows.extend(_of_model(settings, entry_name, place))
                continue
            origin = "built in" if entry is SHIPPED_TIERS.get(entry_name) else "file"
            rows.extend(Row(name, value, origin) for name, value in _flat(place, entry))
    for secret, entry in settings.keys.items():
        place = beneath("keys", key_id(secret.reveal()))
        rows.extend(Row(name, value, "file") for name, value in _flat(place, entry))
    return rows


def _of_model(settings: Settings, slug: str, place: str) -> Iterator[Row]:
    """The rows of a model that the file has something to say of."""
    said = settings.written.get(slug)
    if said is None:
        return
    changes = settings.catalogue.shipped and slug in shipped_models()
    for name, value in _flat(place, settings.models[slug]):
        member = _MEMBER.match(name, len(place) + 1)
        shipped = changes and member is not None and member[0] not in said
        yield Row(name, value, "shipped" if shipped else "file")


def settings_text(settings: Settings) -> str:
    """The rows of `describe` as aligned lines."""
    rows = describe(settings)
    name_width = max(len(row.name) for row in rows)
    value_width = max(len(row.value) for row in rows)
    lines = (f"{row.name:<{name_width}}  {row.value:<{value_width}}  {row.origin}" for row in rows)
    return "\n".join(lines) + "\n"


def summary_text(settings: Settings, path: str | None) -> str:
    """One line for a configuration without problems; *path* is the file that it was read from, if any."""
    counts = f"{_counted(len(settings.models), 'model')}, {_counted(len(settings.keys), 'key')}"
    return f"{path or 'no file, so defaults and variables only'}: fine, {counts}"


def warnings_text(settings: Settings) -> str:
    """A line for each reason why nobody can be served although nothing is wrong; empty where there is none."""
    lines = []
    if not settings.models:
        lines.append(f"warning: no models are configured, so there is nothing to ask for{_hint(settings)}\n")
    if not settings.keys:
        lines.append("warning: no keys are configured, so only those of the database are served\n")
    return "".join(lines)


def _hint(settings: Settings) -> str:
    """Where models could come from, to whoever has named providers alone."""
    if not settings.providers or settings.catalogue.shipped:
        return ""
    return "; `shipped = true` in [catalogue] serves those that ship with the gateway"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def problems_text(error: SettingsError) -> str:
    """One problem a line, after a line that counts them."""
    count = len(error.problems)
    head = f"{_counted(count, 'problem')} in the configuration:"
    return "\n".join((head, *(f"  {problem}" for problem in error.problems))) + "\n"


def _flat(place: str, section: Any) -> Iterator[tuple[str, str]]:
    """The settings of *section* and beneath, with their places; those that are left out are not listed."""
    for name, rule in rules_of(type(section)).items():
        value = getattr(section, rule.attribute)
        here = beneath(place, name)
        if value is None:
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, Weight):
            yield from _flat(here, value)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for number, item in enumerate(value):
                yield from _flat(f"{here}[{number}]", item)
        else:
            yield here, rule.render(value) if rule.render else written(value)
