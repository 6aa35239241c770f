"""Where a value comes from: command line, GATEWAY_*, Heroku's variables, the file; the first that has it wins."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gateway.settings.fields import rules_of, variable_of
from gateway.settings.reader import Given, Reader, beneath
from gateway.settings.sections import SCALAR_SECTIONS

# Set by Heroku and by most platforms that copied it.
HEROKU = {
    "PORT": ("server", "port"),
    "WEB_CONCURRENCY": ("server", "workers"),
    "DATABASE_URL": ("storage", "database_url"),
    "REDIS_URL": ("storage", "redis_url"),
}
_HEROKU_HOST = "0.0.0.0"  # noqa: S104 - a dyno's router reaches the process from outside
# Kubernetes describes a service called "gateway-server" in such variables; they are no settings of ours.
_SERVICE_LINK = re.compile(r"GATEWAY_[A-Z]+_(SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP)\w*)")

Layers = dict[str, dict[str, Given]]


def layered(
    document: Mapping[str, object], environ: Mapping[str, str], overrides: Mapping[str, object], reader: Reader
) -> Layers:
    """The winning value of every scalar setting that was given anywhere, by section and name."""
    layers = _from_file(document, reader)
    _from_heroku(environ, layers)
    _from_variables(environ, layers)
    _from_command_line(overrides, layers, reader)
    if "host" not in layers["server"] and environ.get("PORT"):
        layers["server"]["host"] = Given(_HEROKU_HOST, "PORT", origin="PORT")
    return layers


def _from_file(document: Mapping[str, object], reader: Reader) -> Layers:
    layers: Layers = {section: {} for section in SCALAR_SECTIONS}
    for section in SCALAR_SECTIONS:
        table = document.get(section, {})
        if isinstance(table, Mapping):
            layers[section] = {str(name): Given(value, beneath(section, str(name))) for name, value in table.items()}
        else:
            reader.problem(section, "is not a table")
    return layers


def _from_heroku(environ: Mapping[str, str], layers: Layers) -> None:
    for variable, (section, name) in HEROKU.items():
        if environ.get(variable):
            layers[section][name] = Given(environ[variable], variable, lax=True, origin=variable)


def _from_variables(environ: Mapping[str, str], layers: Layers) -> None:
    """GATEWAY_<SECTION>_<NAME>. An empty one counts as not set; one of no known section is not for us."""
    for section, cls in SCALAR_SECTIONS.items():
        known = {variable_of(section, name): name for name in rules_of(cls)}
        for variable, text in environ.items():
            if text and variable.startswith(variable_of(section, "")) and not _SERVICE_LINK.fullmatch(variable):
                name = known.get(variable, variable.removeprefix(variable_of(section, "")).lower())
                layers[section][name] = Given(text, variable, lax=True, origin=variable)


def _from_command_line(overrides: Mapping[str, object], layers: Layers, reader: Reader) -> None:
    """Options by "section.name"; None stands for an option that was not given."""
    for key, value in overrides.items():
        section, _, name = key.partition(".")
        option = f"--{name.replace('_', '-')}"
        if value is None:
            continue
        if section not in layers:
            reader.unknown(key, key, (f"{known}.{name}" for known in SCALAR_SECTIONS))
            continue
        layers[section][name] = Given(value, option, lax=isinstance(value, str), origin=option)
