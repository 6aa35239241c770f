"""From a file, the environment and the command line to frozen settings, or to the list of all that is wrong."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gateway.providers.presets import Preset
from gateway.settings import checks
from gateway.settings.aws import with_account
from gateway.settings.entries import SHIPPED_TIERS, KeyEntry, MeteringSettings, ModelEntry, ProviderEntry, TierEntry
from gateway.settings.fields import Secret
from gateway.settings.policies import PolicyEntry
from gateway.settings.reader import Broken, Reader, beneath, good, key_place
from gateway.settings.relations import check_relations
from gateway.settings.sections import (
    SCALAR_SECTIONS,
    CatalogueSettings,
    IdempotencySettings,
    LedgerSettings,
    LimitsSettings,
    LoggingSettings,
    ModerationSettings,
    ServerSettings,
    StorageSettings,
    StreamSettings,
    TracesSettings,
    UpstreamSettings,
    VisionSettings,
)
from gateway.settings.shipped import with_shipped
from gateway.settings.sources import HEROKU, Layers, layered

T = TypeVar("T")

_TABLES = ("metering", "providers", "models", "tiers", "policies", "keys")
# TOML errors quote table names, and those of [keys] are secrets.
_KEY_IN_TEXT = re.compile(r"anm-[a-z]+-[^\s'\"\])]*")


class SettingsError(Exception):
    """The configuration is not usable. `problems` names everything that is wrong, each with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything in force. Frozen: a reload makes another one.

    Attributes:
        keys: By secret, which shows itself to nobody.
        written: What the file itself says: the names of members by model. All else of the models is as shipped.
        origins: Where each scalar setting ("server.port") that is not a default came from.
    """

    server: ServerSettings
    storage: StorageSettings
    idempotency: IdempotencySettings
    ledger: LedgerSettings
    traces: TracesSettings
    stream: StreamSettings
    upstream: UpstreamSettings
    catalogue: CatalogueSettings
    vision: VisionSettings
    moderation: ModerationSettings
    limits: LimitsSettings
    logging: LoggingSettings
    metering: MeteringSettings
    providers: Mapping[str, ProviderEntry]
    models: Mapping[str, ModelEntry]
    tiers: Mapping[str, TierEntry]
    policies: Mapping[str, PolicyEntry]
    keys: Mapping[Secret, KeyEntry]
    written: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False, compare=False)
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def moderates(self) -> bool:
        """Whether a provider's moderation is configured."""
        return bool(self.moderation.provider)


@dataclass(frozen=True, slots=True)
class Stored:
    """What commands need that look after records, whatever else is wrong with the configuration.

    Attributes:
        tiers: Those without a problem; so with policies.
        models: The slugs of all models.
        problems: What is wrong with all the rest, which is passed over.
        moderates: Whether a provider's moderation is configured.
    """

    storage: StorageSettings
    tiers: Mapping[str, TierEntry]
    policies: Mapping[str, PolicyEntry]
    models: frozenset[str]
    problems: tuple[str, ...]
    moderates: bool


def environment() -> Mapping[str, str]:
    """A copy of the process's environment; nothing else in the gateway reads it."""
    return dict(os.environ)


def export(**variables: str) -> None:
    """Set *variables* for libraries that take them from the environment, in this process and those it starts."""
    os.environ.update(variables)


def load(
    path: str | None, environ: Mapping[str, str], overrides: Mapping[str, object], *, presets: Mapping[str, Preset]
) -> Settings:
    """
    The settings of the file at *path* (none if None), *environ* and *overrides*.

    Args:
        overrides: Options of the command line by "section.name"; None stands for one that was not given.
        presets: The vendors that `[providers.X] preset` may name.

    Raises:
        SettingsError: With all problems at once.
    """
    return from_document(_parsed(path), environ, overrides, presets=presets, folder=_folder_of(path))


def load_stored(path: str | None, environ: Mapping[str, str], *, presets: Mapping[str, Preset]) -> Stored:
    """
    As `load`, for commands that serve nobody.

    Raises:
        SettingsError: It cannot be told which database is meant.
    """
    document = _parsed(path)
    reader, _, scalars, tables = _read(document, environ, {}, presets, _folder_of(path))
    storage = scalars["storage"]
    vital = [problem for problem in reader.problems if _is_vital(problem)]
    if vital or isinstance(storage, Broken):
        raise SettingsError(vital or reader.problems)
    tiers, policies = (
        {name: entry for name, entry in tables[section].items() if not isinstance(entry, Broken)}
        for section in ("tiers", "policies")
    )
    models, moderates = frozenset(tables["models"]), bool(good(scalars["moderation"]).get("provider"))
    return Stored(storage, tiers, policies, models, tuple(reader.problems), moderates)


def _is_vital(problem: str) -> bool:
    """Whether *problem* is one of [storage], or of a section of no known name, which may be meant for it."""
    place = problem.partition(": ")[0]
    section = place.partition(".")[0]
    if section == "storage" or place.startswith("GATEWAY_STORAGE_"):
        return True
    if place in HEROKU:
        return HEROKU[place][0] == "storage"
    return place == section and place.islower() and place not in (*SCALAR_SECTIONS, *_TABLES)


def _folder_of(path: str | None) -> Path:
    return Path() if path is None else Path(path).parent


def _parsed(path: str | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(Path(path).read_bytes().decode())
    except OSError as exc:
        raise SettingsError([f"{path}: cannot be read: {exc.strerror}"]) from exc
    except UnicodeDecodeError as exc:
        raise SettingsError([f"{path}: is not UTF-8 text (at byte {exc.start})"]) from None
    except tomllib.TOMLDecodeError as exc:
        # `from None`: the original quotes what it stumbled over, which may be a key.
        raise SettingsError([f"{path}: {_KEY_IN_TEXT.sub('***', str(exc))}"]) from None
    except RecursionError:
        raise SettingsError([f"{path}: is nested too deeply"]) from None
    except ValueError as exc:  # thousands of digits: the parser lets Python's own complaint, and its advice, through
        complaint = str(exc).partition(";")[0]
        raise SettingsError([f"{path}: cannot be read: {_KEY_IN_TEXT.sub('***', complaint)}"]) from None


def from_document(
    document: Mapping[str, Any],
    environ: Mapping[str, str],
    overrides: Mapping[str, object],
    *,
    presets: Mapping[str, Preset],
    folder: Path = Path(),
) -> Settings:
    """As `load`, from a file that was already parsed. *folder* is what `{ file = "..." }` is relative to."""
    reader, layers, scalars, tables = _read(document, environ, overrides, presets, folder)
    if reader.problems:
        raise SettingsError(reader.problems)
    origins = _origins(layers, document.get("metering", {}))
    return Settings(**scalars, **tables, written=_members(document.get("models", {})), origins=origins)


def _read(
    document: Mapping[str, Any],
    environ: Mapping[str, str],
    overrides: Mapping[str, object],
    presets: Mapping[str, Preset],
    folder: Path,
) -> tuple[Reader, Layers, dict[str, Any], dict[str, Any]]:
    """The sections and the tables, of which some may be `Broken`, and the reader that knows why."""
    reader = Reader(environ, folder)
    for name in document:
        if name not in SCALAR_SECTIONS and name not in _TABLES:
            reader.unknown(name, name, (*SCALAR_SECTIONS, *_TABLES))
    if isinstance(providers := document.get("providers"), Mapping):
        document = {**document, "providers": with_account(providers, environ, presets)}
    layers = layered(document, environ, overrides, reader)
    scalars: dict[str, Any] = {
        section: reader.section(cls, layers[section], section) for section, cls in SCALAR_SECTIONS.items()
    }
    if good(scalars["catalogue"]).get("shipped"):
        document = with_shipped(document)
    tables: dict[str, Any] = {
        "metering": reader.table(MeteringSettings, document.get("metering", {}), "metering"),
        "providers": _entries(reader, ProviderEntry, document, "providers", checks.label),
        "models": _entries(reader, ModelEntry, document, "models", checks.slug),
        "tiers": {**SHIPPED_TIERS} | _entries(reader, TierEntry, document, "tiers", checks.label),
        "policies": _entries(reader, PolicyEntry, document, "policies", checks.label),
        "keys": _keys(reader, document.get("keys", {})),
    }
    check_relations(reader, scalars, tables, presets)
    return reader, layers, scalars, tables


def _entries(
    reader: Reader, cls: type[T], document: Mapping[str, Any], section: str, check_name: Callable[[str], object]
) -> dict[str, T | Broken]:
    """The tables of *section* by name, broken ones too, so that references to them still resolve."""
    table = document.get(section, {})
    if not isinstance(table, Mapping):
        reader.problem(section, "is not a table")
        return {}
    for name in table:
        reader.checked(check_name, name, beneath(section, name))
    return {name: reader.table(cls, entry, beneath(section, name)) for name, entry in table.items()}


def _keys(reader: Reader, table: object) -> dict[Secret, KeyEntry | Broken]:
    """As `_entries`; a problem names a key by its position, because its name is a secret."""
    if not isinstance(table, Mapping):
        reader.problem("keys", "is not a table")
        return {}
    entries: dict[Secret, KeyEntry | Broken] = {}
    for number, (text, entry) in enumerate(table.items(), start=1):
        place = key_place(number)
        reader.checked(checks.gateway_key, text, place)
        entries[Secret(text)] = reader.table(KeyEntry, entry, place)
    return entries


def _members(models: Mapping[str, Mapping[str, object]]) -> dict[str, frozenset[str]]:
    return {slug: frozenset(said) for slug, said in models.items()}


def _origins(layers: Layers, metering: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    origins = {f"metering.{table}.{name}": "file" for table, weights in metering.items() for name in weights}
    for section, values in layers.items():
        origins |= {f"{section}.{name}": given.origin for name, given in values.items()}
    return origins
