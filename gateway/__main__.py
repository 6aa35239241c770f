"""The command line: `python -m gateway` or `gateway`."""

from __future__ import annotations

import os
import signal

if __name__ == "__main__":
    # Until the server takes the signal over, Ctrl-C ends the process on the spot, with the number shells have for it,
    # 128 + 2. The imports below take half a second, and an exception in the middle of one would show a traceback.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import uvloop
from msgspec import Raw

from gateway.app import BACKLOG, App
from gateway.bookkeeping import spool_directory
from gateway.commands.accounts import keys, tenants
from gateway.commands.configured import config_option, load_or_exit, load_settings
from gateway.commands.guard import guard
from gateway.commands.ledger import ledger
from gateway.commands.policies import policies
from gateway.commands.reading import traces, usage
from gateway.commands.stored import now_ms, with_database
from gateway.commands.words import TextGroup
from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.catalog import ClientDialectName
from gateway.core.errors import GatewayError
from gateway.demo import DATABASE as DEMO_DATABASE
from gateway.demo import banner, provider_process, seed
from gateway.demo import document as demo_document
from gateway.metrics import MetricsRecorder
from gateway.policy.explanation import Assumed, explain
from gateway.providers.presets import PRESETS
from gateway.settings import (
    FileTerms,
    Settings,
    SettingsError,
    build_catalog,
    build_keys,
    environment,
    export,
    from_document,
    load,
    models_text,
    problems_text,
    settings_text,
    summary_text,
    warnings_text,
)
from gateway.siblings import Siblings
from gateway.storage.journal.slots import FILE_BYTES as SLOTS_BYTES
from gateway.telemetry import configure


def _warn(settings: Settings) -> None:
    click.echo(warnings_text(settings), nl=False, err=True)


_DIALECTS: dict[str, ClientDialectName] = {"chat": "openai_chat", "messages": "anthropic_messages"}


@click.group(cls=TextGroup)
def main() -> None:
    """A streaming LLM gateway."""
    # The least that Python allows, 640. Time to read an integer grows with the square of its digits: 4 MB of the
    # longest read by default hold the loop for 0.1 s, 16 MB for seconds. Integers that are of use have at most 20.
    sys.set_int_max_str_digits(sys.int_info.str_digits_check_threshold)


@main.command()
@config_option
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on.")
@click.option("--workers", type=int, help="Processes; more than one run under gunicorn.")
def serve(config: str | None, host: str | None, port: int | None, workers: int | None) -> None:
    """Serve until SIGTERM."""
    overrides = {"server.host": host, "server.port": port, "server.workers": workers}
    settings = load_or_exit(config, overrides)
    _warn(settings)
    if settings.server.workers > 1:
        run_workers(settings, config, overrides)
    else:
        run_single(settings, lambda: _usable(load_settings(config, overrides), settings))


def _listen_or_exit(settings: Settings) -> socket.socket:
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as exc:
        reason = str(exc.strerror).partition(" (")[0]  # the library goes on with the address
        click.echo(f"Cannot listen on {host}, port {port}: {reason}. Choose another port with --port.", err=True)
        sys.exit(1)


def _make_spool_or_exit(settings: Settings) -> None:
    """Make a place for the journal, which is wanted by the first call, and see that every process has room for its
    own: one that begins without would not know what to do but end."""
    directory = spool_directory(settings)
    room = settings.server.workers * SLOTS_BYTES if settings.ledger.durability == "spool" else 0
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            if room:
                os.posix_fallocate(file.fileno(), 0, room)
    except OSError as exc:
        click.echo(f"Cannot write to {directory}: {exc.strerror}. Choose another [ledger] directory.", err=True)
        sys.exit(1)


def run_workers(settings: Settings, config: str | None, overrides: dict[str, Any]) -> None:
    """Serve in processes of their own; this one becomes their master."""
    listener, environ = _listen_or_exit(settings), environment()
    _make_spool_or_exit(settings)
    directory = Path(tempfile.mkdtemp(prefix="gateway-metrics-"))
    # The one place that sets variables. The metrics library looks up the first whenever a worker makes a metric;
    # gunicorn reads the second when it is imported, so only now, and trips over one that is no number, even if empty.
    export(PROMETHEUS_MULTIPROC_DIR=str(directory), WEB_CONCURRENCY=str(settings.server.workers))
    from gateway.master import serve_workers

    def reread() -> Settings:
        return _usable(load(config, environ, overrides, presets=PRESETS), settings)

    serve_workers(settings, reread, listener, directory)


def _usable(settings: Settings, first: Settings) -> Settings:
    """
    *settings* that were read again.

    Args:
        first: Those of the start. A gateway whose keys are all in the database has never had any of the file.

    Raises:
        SettingsError: They have no models or no keys any more, like a file that is being written at the moment.
    """
    missing = [name for name in ("models", "keys") if getattr(first, name) and not getattr(settings, name)]
    if missing:
        raise SettingsError([f"{name}: there are none, which a restart may change but no reload" for name in missing])
    return settings


def run_single(
    settings: Settings, reread: Callable[[], Settings], greet: Callable[[str, int], str] | None = None
) -> None:
    """Serve in this process.

    Args:
        reread: Gives fresh settings for SIGHUP.
        greet: Makes what is shown once we listen of the address and the port.
    """
    listener = _listen_or_exit(settings)
    _make_spool_or_exit(settings)
    if greet is not None:
        host, port = listener.getsockname()[:2]  # of IPv6 there are four
        click.echo(greet(host, port))
    metrics = MetricsRecorder()
    telemetry = configure(settings.logging.format, settings.logging.level, sys.stdout, on_drop=metrics.lines_dropped)

    async def run() -> None:
        await App(settings, reread, telemetry, metrics, Siblings()).serve([listener])

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    finally:
        listener.close()
        telemetry.close()


@main.command()
@config_option
def migrate(config: str | None) -> None:
    """Bring the database to this version's tables; harmless where it already has them."""
    # Here, because importing alembic costs half a second and 30 MB, which serving can do without.
    from gateway.storage.migrations import MigrationError, upgrade

    settings = load_or_exit(config)
    try:
        click.echo(str(upgrade(settings.storage.database_url)))
    except MigrationError as exc:
        click.echo(f"The database cannot be migrated: {exc}", err=True)
        sys.exit(1)


@main.command()
@click.option("--host", help="Address to listen on.")
@click.option("--port", type=int, help="Port to listen on.")
def demo(host: str | None, port: int | None) -> None:
    """Serve a built-in provider, and every vendor whose usual key variable is set."""
    environ, overrides = environment(), {"server.host": host, "server.port": port, "server.workers": 1}
    overrides |= {"storage.database_url": DEMO_DATABASE, "storage.redis_url": ""}  # nothing but this machine
    with provider_process() as provider_port:
        document = demo_document(provider_port, environ)

        def read() -> Settings:
            return from_document(document, environ, overrides, presets=PRESETS)

        try:
            settings = read()
        except SettingsError as exc:
            click.echo(problems_text(exc), err=True)
            sys.exit(1)
        with_database(settings.storage, lambda database: seed(database, FileTerms.of(settings), now_ms))
        run_single(settings, read, partial(banner, environ))


@main.command()
@config_option
def check(config: str | None) -> None:
    """Say everything that is wrong with the configuration."""
    settings = load_or_exit(config)
    click.echo(summary_text(settings, config))
    _warn(settings)


@main.group(invoke_without_command=True)
@config_option
@click.pass_context
def models(context: click.Context, config: str | None) -> None:
    """List the models: slug, class, USD per million tokens in and out, context window, routes in fallback order."""
    if context.invoked_subcommand is not None:
        return
    settings = load_or_exit(config)
    click.echo(models_text(build_catalog(settings, PRESETS), time.time()), nl=False)
    _warn(settings)


@models.command("explain")
@click.argument("slug")
@config_option
@click.option("--key", help="The key that calls, or its id as in logs; by default one without restrictions.")
@click.option("--endpoint", type=click.Choice(list(_DIALECTS)), default="chat", help="Where the call comes in.")
@click.option("--tools", is_flag=True, help="The call has tools.")
@click.option("--tokens", type=click.IntRange(0), default=0, help="How many tokens the prompt has; 0 fits everywhere.")
@click.option("--image", is_flag=True, help="The prompt has an image.")
@click.option("--json", "whole", is_flag=True, help="The call is without streaming.")
def explain_model(
    slug: str, config: str | None, key: str | None, *, endpoint: str, tools: bool, tokens: int, image: bool, whole: bool
) -> None:  # fmt: skip
    """Say why each route of the model SLUG would be taken or left. Nothing is asked of any provider."""
    settings = load_or_exit(config)
    fields = {"tools": Raw(b"[{}]")} if tools else {}
    call = Call(_DIALECTS[endpoint], fields, slug, not whole, CallOptions())
    try:
        prompt = Assumed(tokens, has_image=image)
        for line in explain(build_catalog(settings, PRESETS), _key_or_exit(settings, key), call, prompt):
            click.echo(line)
    except GatewayError as error:
        click.echo(f"{error.kind.status} {error.kind.code}: {error.message}", err=True)
        sys.exit(1)


def _key_or_exit(settings: Settings, named: str | None) -> Key:
    if named is None:
        return Key("any", "any", Tier("any"))
    found = next((key for secret, key in build_keys(settings).items() if named in (secret, key.id)), None)
    if found is None:
        click.echo("There is no such key in the configuration; name it in full, or by its id as in logs.", err=True)
        sys.exit(1)
    return found


@main.command("settings")
@config_option
def show_settings(config: str | None) -> None:
    """Print the settings in force, secrets masked."""
    click.echo(settings_text(load_or_exit(config)))


for command in (keys, tenants, policies, usage, traces, ledger, guard):
    main.add_command(command)

if __name__ == "__main__":
    main()
