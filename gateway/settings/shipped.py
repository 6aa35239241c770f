"""The models that ship with the gateway, and how a file's own change them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

Table = Mapping[str, Any]

_ABOUT_THE_ROW = ("source", "checked")  # for whoever keeps the file
_PLACE = "aws_region"  # of an account; of a route in the file, how that begins


@cache
def shipped_models() -> Mapping[str, Table]:
    """The rows of `models.toml` by slug, as they are written there; not to be changed."""
    text = files("gateway").joinpath("models.toml").read_text(encoding="utf-8")
    models: Mapping[str, Table] = tomllib.loads(text)["models"]
    return models


def shipped_presets() -> frozenset[str]:
    """The presets that have models in it."""
    return frozenset(route["provider"] for row in shipped_models().values() for route in row["routes"])


def with_shipped(document: Table) -> Table:
    """
    *document* with the shipped models that its providers have. A model of its own takes the place of the shipped one of
    that name member by member: what it does not say stays as shipped.

    What in *document* is not of the right form is left as it is, for the reader to report.
    """
    own = document.get("models", {})
    if not isinstance(own, Mapping):
        return document
    providers = document.get("providers")
    models: dict[str, Any] = {}
    for slug, row in shipped_models().items():
        facts = {name: value for name, value in row.items() if name not in _ABOUT_THE_ROW}
        facts["routes"] = [route for shipped in row["routes"] for route in _routes(shipped, providers)]
        said = own.get(slug)
        if isinstance(said, Mapping):
            models[slug] = _changed(facts, said)
        elif said is not None or facts["routes"]:
            models[slug] = facts if said is None else said
    return {**document, "models": {**models, **{slug: said for slug, said in own.items() if slug not in models}}}


def _changed(facts: dict[str, Any], said: Table) -> dict[str, Any]:
    """*facts* with what the file *said* in their place. A price of its own is for good: the dated ones go as well."""
    if "price" in said:
        facts.pop("effective", None)
    if not facts["routes"]:
        del facts["routes"]  # the file has to name some
    return {**facts, **said}


def _routes(shipped: Table, providers: object) -> Iterator[dict[str, Any]]:
    """A route for each account at the row's preset, and in its part of Amazon's cloud where it names one."""
    members = {name: value for name, value in shipped.items() if name != _PLACE}
    for name, entry in providers.items() if isinstance(providers, Mapping) else ():
        if not isinstance(entry, Mapping) or entry.get("preset") != shipped["provider"]:
            continue
        if str(entry.get(_PLACE, "")).startswith(shipped.get(_PLACE, "")):
            yield {**members, "provider": name}
