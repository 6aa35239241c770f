"""What the subcommands share: the option that names the file, and the settings, or an exit that says what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gateway.providers.presets import PRESETS
from gateway.settings import Settings, SettingsError, Stored, environment, load, load_stored, problems_text

CONFIG_FILE = "gateway.toml"


def _config_path(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    """The file that was named, by option or variable, else ./gateway.toml where there is one."""
    if named := given or environment().get("GATEWAY_CONFIG"):
        return named
    return CONFIG_FILE if Path(CONFIG_FILE).is_file() else None


config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False),
    callback=_config_path,
    help="The file to read; by default the one named by GATEWAY_CONFIG, else ./gateway.toml where there is one.",
)


def load_settings(config: str | None, overrides: dict[str, Any]) -> Settings:
    """
    The settings of the file *config*, the environment and *overrides*.

    Raises:
        SettingsError: Something is wrong with them.
    """
    return load(config, environment(), overrides, presets=PRESETS)


def load_or_exit(config: str | None, overrides: dict[str, Any] | None = None) -> Settings:
    """As `load_settings`; with problems the process ends, and says them."""
    try:
        return load_settings(config, overrides or {})
    except SettingsError as exc:
        click.echo(problems_text(exc), err=True)
        sys.exit(1)


def stored_or_exit(config: str | None) -> Stored:
    """What a command needs that looks after records. Whatever else is wrong is said, and passed over."""
    try:
        found = load_stored(config, environment(), presets=PRESETS)
    except SettingsError as exc:
        click.echo(problems_text(exc), err=True)
        sys.exit(1)
    if found.problems:
        text = problems_text(SettingsError(list(found.problems)))
        click.echo(f"This command needs [storage], [tiers] and [policies], and passes over {text}", err=True, nl=False)
    return found
