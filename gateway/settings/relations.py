"""What must hold between settings. Entries with problems of their own (None) are passed over in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.providers.presets import Preset
from gateway.settings.entries import KeyEntry, ModelEntry, ProviderEntry
from gateway.settings.fields import shown, written
from gateway.settings.reader import Reader, beneath, key_place

# From the end of the drain to the exit, at most: farewell 2 s, connections 0.75, tasks 0.75, log 1.
TAIL_S = 4.5

# (section, setting, relation, setting): the first must be that of the second.
_ORDERED = (
    ("server", "max_body_bytes", "at most", "max_image_body_bytes"),
    ("upstream", "breaker_open_s", "at most", "breaker_open_max_s"),
)


def check_relations(
    reader: Reader, scalars: Mapping[str, Any], tables: Mapping[str, Any], presets: Mapping[str, Preset]
) -> None:
    """Note every relation that does not hold."""
    for section, small, relation, large in _ORDERED:
        values = scalars[section]
        if values is None:
            continue
        left, right = getattr(values, small), getattr(values, large)
        if left > right:
            reader.problem(f"{section}.{small}", f"{written(left)} is not {relation} {large} ({written(right)})")
    server = scalars["server"]
    if server is not None and server.drain_s + TAIL_S > server.exit_s:
        left = f"{written(server.drain_s)} leaves less than {TAIL_S} s until exit_s ({written(server.exit_s)})"
        reader.problem("server.drain_s", f"{left} for the last frames and for closing")
    for name, provider in tables["providers"].items():
        if provider is not None:
            _provider(reader, beneath("providers", name), provider, presets)
    for slug, model in tables["models"].items():
        if model is not None:
            _model(reader, beneath("models", slug), model, tables["providers"])
    for number, key in enumerate(tables["keys"].values(), start=1):
        if key is not None:
            _key(reader, key_place(number), key, tables["tiers"])


def _provider(reader: Reader, place: str, provider: ProviderEntry, presets: Mapping[str, Preset]) -> None:
    preset = presets.get(provider.preset)
    if preset is None:
        names = ", ".join(sorted(presets)) or "none"
        reader.problem(f"{place}.preset", f"{shown(provider.preset)} is not a preset; there are: {names}")
    elif preset.base_url is None and provider.base_url is None:
        reader.problem(f"{place}.base_url", f"is missing; the preset {preset.name} has none of its own")


def _model(reader: Reader, place: str, model: ModelEntry, providers: Mapping[str, object]) -> None:
    seen = set()
    for number, route in enumerate(model.routes):
        if route.provider not in providers:
            names = ", ".join(providers) or "none"
            reader.problem(
                f"{place}.routes[{number}].provider",
                f"there is no provider {shown(route.provider)}; there are: {names}",
            )
        if (route.provider, route.model) in seen:
            reader.problem(f"{place}.routes[{number}]", "is the same route as one before it")
        seen.add((route.provider, route.model))
    if model.max_output_tokens is not None and model.max_output_tokens > model.context_window:
        reader.problem(
            f"{place}.max_output_tokens",
            f"{model.max_output_tokens} is not at most context_window ({model.context_window})",
        )


def _key(reader: Reader, place: str, key: KeyEntry, tiers: Mapping[str, object]) -> None:
    if key.tier not in tiers:
        names = ", ".join(tiers)
        reader.problem(f"{place}.tier", f"there is no tier {shown(key.tier)}; there are: {names}")
