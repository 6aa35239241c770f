"""The command line: `python -m gateway` or `gateway`."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import click
import uvloop

from gateway.app import BACKLOG, App
from gateway.metrics import MetricsRecorder
from gateway.providers.presets import PRESETS
from gateway.settings import Settings, SettingsError, environment, load, problems_text, settings_text
from gateway.telemetry import configure


def _load(config: str | None, overrides: dict[str, Any]) -> Settings:
    return load(config, environment(), overrides, presets=PRESETS)


def _load_or_exit(config: str | None, overrides: dict[str, Any] | None = None) -> Settings:
    try:
        return _load(config, overrides or {})
    except SettingsError as exc:
        click.echo(problems_text(exc), err=True)
        sys.exit(1)


_config = click.option("--config", type=click.Path(dir_okay=False), help="The gateway.toml to read.")


@click.group()
def main() -> None:
    """A streaming LLM gateway."""


@main.command()
@_config
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on.")
@click.option("--workers", type=int, help="Processes; more than one run under gunicorn.")
def serve(config: str | None, host: str | None, port: int | None, workers: int | None) -> None:
    """Serve until SIGTERM."""
    overrides = {"server.host": host, "server.port": port, "server.workers": workers}
    settings = _load_or_exit(config, overrides)
    run_single(settings, config, overrides)


def run_single(settings: Settings, config: str | None, overrides: dict[str, Any]) -> None:
    """Serve in this process."""
    listener = socket.create_server((settings.server.host, settings.server.port), backlog=BACKLOG)
    metrics = MetricsRecorder()
    telemetry = configure(
        settings.logging.format, settings.logging.level, sys.stdout, on_drop=metrics.lines_dropped
    )

    async def run() -> None:
        await App(settings, lambda: _load(config, overrides), telemetry, metrics).serve([listener])

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        listener.close()
        telemetry.close()


@main.command()
@_config
def check(config: str | None) -> None:
    """Say everything that is wrong with the configuration."""
    settings = _load_or_exit(config)
    click.echo(f"The configuration is fine: {len(settings.models)} models, {len(settings.keys)} keys.")


@main.command("settings")
@_config
def show_settings(config: str | None) -> None:
    """Print the settings in force, secrets masked."""
    click.echo(settings_text(_load_or_exit(config)))


if __name__ == "__main__":
    main()
