"""`gateway tenants` and `gateway keys`: accounts in the database, changed by whoever runs the gateway."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, get_args

import click

from gateway.commands.configured import config_option, stored_or_exit
from gateway.commands.looking import Patient, look_into, need_database
from gateway.commands.options import BudgetType, MomentType, as_label, json_option, print_view
from gateway.commands.reading import columns, table
from gateway.commands.stored import fail, now_ms, with_accounts
from gateway.commands.words import TextGroup
from gateway.core.accounts import Budget, Residency, Right, WhenBlind
from gateway.core.allowances import COLUMNS, AllowanceUsed
from gateway.core.catalog import ModelClass, unknown_models
from gateway.core.credentials import ENTROPY_BYTES, make_secret
from gateway.core.money import format_nano
from gateway.core.record_views import key_view, secret_view, tenant_view
from gateway.core.records import CLI, KeyDraft, KeyRecord, Secret, Tenant
from gateway.policy.periods import month_of, number_of
from gateway.settings import FileTerms, key_id
from gateway.storage.accounts import SqlAccounts
from gateway.storage.allowances import SqlAllowances
from gateway.wire.moments import moment_text, read_end
from gateway.wire.sheets import sheet

AT_ONCE = 200  # rows in one query of a list
_TENANT_HEAD = ("tenant", "tier", "state", "budgets", "name")
_KEY_HEAD = ("id", "secret", "tenant", "rights", "state", "tier", "limits", "budgets", "name")
_ALL_ADMIN = tuple(right for right in get_args(Right) if right != "inference")
_key_budgets = click.option(
    "--budget",
    "budgets",
    type=BudgetType("key", ("key", "session")),
    multiple=True,
    help="What may be spent in a day, week, month or in total, such as month=50.00; "
    "session:total=0.50 for each session. May be repeated.",
)
_tenant_budgets = click.option(
    "--budget",
    "budgets",
    type=BudgetType("tenant", ("tenant", "session")),
    multiple=True,
    help="What its keys may spend together in a day, week, month or in total, such as month=500.00. May be repeated.",
)


_key_policy = click.option("--policy", help="The policy that its calls are under.")
_tenant_policy = click.option("--policy", help="What all of its keys are under, besides their own policies.")
_no_policy = click.option("--no-policy", is_flag=True, help="Take its policy away.")


def _month(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else month_of(value)
    except ValueError as exc:
        raise click.BadParameter(str(exc)) from None


@click.group(cls=TextGroup)
def tenants() -> None:
    """Look after tenants: who keys belong to."""


@tenants.command("create")
@click.argument("tenant_id", metavar="ID", callback=as_label)
@config_option
@click.option("--name", help="What people call it; its id by default.")
@click.option("--tier", default="enterprise", show_default=True, help="The plan that its keys are on.")
@_tenant_budgets
@_tenant_policy
@json_option
def create_tenant(tenant_id: str, config: str | None, *, name: str | None, as_json: bool, **fields: Any) -> None:
    """Make the tenant ID, a short name of letters, digits, dots, dashes and underscores."""
    fields["name"] = name or tenant_id
    made = with_accounts(stored_or_exit(config), lambda accounts: accounts.create_tenant(CLI, tenant_id, fields))
    print_view(tenant_view(made)) if as_json else click.echo(f"Created the tenant {made.id}, on the tier {made.tier}.")


@tenants.command("list")
@config_option
@json_option
def list_tenants(config: str | None, *, as_json: bool) -> None:
    """List all tenants."""
    stored = stored_or_exit(config)
    need_database(stored.storage.database_url)
    found = with_accounts(stored, _all_tenants)
    if as_json:
        for tenant in found:
            print_view(tenant_view(tenant))
    else:
        click.echo(table([_TENANT_HEAD, *map(_tenant_cells, found)]))


def _tenant_cells(tenant: Tenant) -> list[str]:
    state = "disabled" if tenant.disabled_ms is not None else "active"
    return [tenant.id, tenant.tier, state, _budgets_text(tenant.budgets), tenant.name]


def _budgets_text(budgets: Iterable[Budget]) -> str:
    """As they are given to `--budget`, with the scope of each; `-` for none."""
    return ",".join(f"{one.scope}:{one.period}={format_nano(one.limit_nano_usd)}" for one in budgets) or "-"


async def _all_tenants(accounts: SqlAccounts) -> list[Tenant]:
    found: list[Tenant] = []
    while page := await accounts.tenants(found[-1].id if found else "", AT_ONCE):
        found += page
    return found


@tenants.command("allowances")
@click.argument("tenant_id", metavar="[TENANT]", required=False)
@config_option
@click.option("--month", callback=_month, help="As in 2026-03, of UTC; by default the one that goes on.")
@click.option("--csv", "as_csv", is_flag=True, help="A table for spreadsheets.")
@json_option
def list_allowances(
    tenant_id: str | None, config: str | None, *, month: int | None, as_csv: bool, as_json: bool
) -> None:  # fmt: skip
    """Tell what tenants, or TENANT, have used of a month's weighted tokens, and what those beyond come to."""
    settings = stored_or_exit(config)
    terms, number = FileTerms.of(settings), number_of("month", now_ms()) if month is None else month

    async def step(database: Patient) -> list[AllowanceUsed]:
        return await _allowances(SqlAllowances(database, lambda: terms), number, tenant_id)

    rows = [row.told() for row in look_into(settings.storage, step)]
    if as_csv:
        click.echo(sheet(COLUMNS, [list(row.values()) for row in rows]), nl=False)
    elif as_json:
        for row in rows:
            print_view(row)
    else:
        cells = [["-" if cell is None else str(cell) for cell in row.values()] for row in rows]
        click.echo(columns([COLUMNS, *cells]))


async def _allowances(reader: SqlAllowances, number: int, tenant_id: str | None) -> list[AllowanceUsed]:
    found = list(await reader.month(number, tenant_id, "", AT_ONCE))
    while tenant_id is None and (page := await reader.month(number, None, found[-1].tenant if found else "", AT_ONCE)):
        found += page
    return found


@tenants.command("update")
@click.argument("tenant_id", metavar="ID")
@config_option
@click.option("--name", help="What people call it.")
@click.option("--tier", help="The plan that its keys are on.")
@_tenant_budgets
@click.option("--no-budgets", is_flag=True, help="Take all of its budgets away.")
@_tenant_policy
@_no_policy
@click.option("--disable/--enable", default=None, help="Have all of its keys be unknown, or known again.")
@json_option
def update_tenant(
    tenant_id: str,
    config: str | None,
    *,
    name: str | None,
    tier: str | None,
    budgets: tuple[Budget, ...],
    no_budgets: bool,
    policy: str | None,
    no_policy: bool,
    disable: bool | None,
    as_json: bool,
) -> None:
    """Change the tenant ID. Budgets that are given take the place of all it has."""
    given = {"name": name, "tier": tier, "is_disabled": disable, "budgets": () if no_budgets else budgets or None}
    changes = {field: value for field, value in given.items() if value is not None} | _policy_of(policy, none=no_policy)
    if not changes:
        fail("Say what to change; --help lists it.")
    done = with_accounts(stored_or_exit(config), lambda accounts: accounts.update_tenant(CLI, tenant_id, changes))
    print_view(tenant_view(done)) if as_json else click.echo(f"Changed the tenant {done.id}.")


def _policy_of(policy: str | None, *, none: bool) -> dict[str, str | None]:
    """What changes of a policy: nothing where neither one was named nor *none* is wanted."""
    return {"policy": None} if none else {} if policy is None else {"policy": policy}


@click.group(cls=TextGroup, invoke_without_command=True)
@click.pass_context
def keys(context: click.Context) -> None:
    """Look after keys. Without a subcommand: make a static one, and the lines that put it into gateway.toml."""
    if context.invoked_subcommand is None:
        secret = make_secret("anm-sk", os.urandom(ENTROPY_BYTES))
        click.echo(f'[keys."{secret}"]  # {key_id(secret)} in logs\ntenant = "my-team"\ntier = "enterprise"')


@keys.command("create")
@config_option
@click.option("--tenant", required=True, help="Whose key it is.")
@click.option("--name", default="", help="What people call it.")
@click.option(
    "--admin",
    type=click.Choice(_ALL_ADMIN),
    is_flag=False,
    flag_value="manage",
    help="Make an admin key: with the right to read what is its tenant's, to manage it (without a value), or to "
    "operate all of the gateway. It calls no model.",
)
@click.option("--tier", help="A plan of its own, instead of its tenant's.")
@click.option("--rpm", type=int, help="Requests per minute, instead of the tier's.")
@click.option("--inflight", type=int, help="Requests at once, instead of the tier's.")
@click.option(
    "--class", "classes", multiple=True, type=click.Choice(get_args(ModelClass)), help="Classes, instead of the tier's."
)
@click.option(
    "--model", "models", multiple=True, help="Models that it may use, * for any rest of a name. May be repeated."
)
@click.option("--region-preference", type=click.Choice(get_args(Residency)), default="any", show_default=True)
@click.option("--prefer-batch", is_flag=True, help="Calls may wait for a batch; kept for a later version.")
@_key_budgets
@_key_policy
@click.option(
    "--when-blind",
    type=click.Choice(get_args(WhenBlind)),
    default="open",
    show_default=True,
    help="What becomes of its calls when limits cannot be told for long.",
)
@click.option(
    "--log-bodies", is_flag=True, help="Keep what it sends and gets, redacted, for as long as the settings say."
)
@click.option(
    "--expires", "expires_ms", type=MomentType(read_end), help="When it ends: a date, a time, or a span such as 90d."
)
@json_option
def create_key(config: str | None, *, as_json: bool, admin: Right | None, **options: Any) -> None:
    """Make a key, and show its secret this once."""
    limits = {name: value for name in ("rpm", "inflight", "classes") if (value := options.pop(name)) not in (None, ())}
    if "classes" in limits:
        limits["classes"] = list(limits["classes"])
    rights: tuple[Right, ...] = (admin,) if admin is not None else ("inference",)
    draft = KeyDraft(rights=rights, limits=limits, **{**options, "models": options["models"] or None})
    stored = stored_or_exit(config)
    made = with_accounts(stored, lambda accounts: accounts.create_key(CLI, draft))
    for name in unknown_models(draft.models or (), stored.models):
        click.echo(f"Warning: no model of this configuration is called {name}.", err=True)
    _tell_secret(made, "Created", as_json=as_json)


def _tell_secret(secret: Secret, done: str, *, as_json: bool) -> None:
    if as_json:
        print_view(secret_view(secret))
        return
    click.echo(f"{done} {secret.key.id}, a key of {secret.key.tenant}. Its secret is shown this once:", err=True)
    click.echo(secret.text)  # alone on standard output, for a pipe into whatever keeps it


@keys.command("list")
@config_option
@click.option("--tenant", help="Only the keys of this one.")
@json_option
def list_keys(config: str | None, *, tenant: str | None, as_json: bool) -> None:
    """List keys, newest first, without their secrets."""
    stored = stored_or_exit(config)
    need_database(stored.storage.database_url)
    found = with_accounts(stored, lambda accounts: _all_keys(accounts, tenant))
    if as_json:
        for key in found:
            print_view(key_view(key))
    else:
        click.echo(table([_KEY_HEAD, *map(_key_cells, found)]))


async def _all_keys(accounts: SqlAccounts, tenant: str | None) -> list[KeyRecord]:
    if tenant is not None:
        await accounts.tenant(tenant)  # raises where there is none
    found: list[KeyRecord] = []
    while page := await accounts.keys(tenant, (found[-1].created_ms, found[-1].id) if found else None, AT_ONCE):
        found += page
    return found


def _key_cells(key: KeyRecord) -> list[str]:
    state = "revoked" if key.revoked_ms is not None else "active"
    if key.revoked_ms is None and key.expires_ms is not None:
        state = f"until {moment_text(key.expires_ms)}"
    limits = ",".join(f"{name}={_limit_text(value)}" for name, value in key.limits.items()) or "-"
    return [
        key.id, f"{key.prefix}-...{key.last4}", key.tenant, "+".join(key.rights), state, key.tier or "-", limits,
        _budgets_text(key.budgets), key.name,
    ]  # fmt: skip


def _limit_text(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@keys.command("update")
@click.argument("key_id_given", metavar="ID")
@config_option
@click.option("--name", help="What people call it.")
@click.option("--tier", help="A plan of its own, instead of its tenant's.")
@click.option("--rpm", type=int, help="Requests per minute, instead of the tier's.")
@click.option("--inflight", type=int, help="Requests at once, instead of the tier's.")
@click.option("--no-limits", is_flag=True, help="Take all limits of its own away.")
@_key_budgets
@click.option("--no-budgets", is_flag=True, help="Take all of its budgets away.")
@_key_policy
@_no_policy
@click.option("--expires", "expires_ms", type=MomentType(read_end), help="When it ends, as of a new key.")
@json_option
def update_key(
    key_id_given: str, config: str | None, *, no_limits: bool, no_budgets: bool, no_policy: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Change the key ID. Limits that are given join or replace its own; budgets take the place of all it has."""
    limits = {name: value for name in ("rpm", "inflight") if (value := options.pop(name)) is not None}
    budgets = () if no_budgets else options.pop("budgets") or None
    given = {name: options[name] for name in ("name", "tier", "expires_ms")} | {"budgets": budgets}
    changes = {field: value for field, value in given.items() if value is not None}
    changes |= _policy_of(options["policy"], none=no_policy)
    if not (changes or limits or no_limits):
        fail("Say what to change; --help lists it.")

    async def step(accounts: SqlAccounts) -> KeyRecord:
        if limits or no_limits:
            own = {} if no_limits else (await accounts.key(None, key_id_given)).limits
            changes["limits"] = {**own, **limits}
        return await accounts.update_key(CLI, key_id_given, changes)

    done = with_accounts(stored_or_exit(config), step)
    print_view(key_view(done)) if as_json else click.echo(f"Changed the key {done.id}.")


@keys.command("rotate")
@click.argument("key_id_given", metavar="ID")
@config_option
@click.option(
    "--overlap", type=click.IntRange(0, 30 * 86_400), default=0, help="Seconds for which the old secret is still taken."
)
@json_option
def rotate_key(key_id_given: str, config: str | None, *, overlap: int, as_json: bool) -> None:
    """Give the key ID a new secret, and show it this once. Its id, limits and budgets stay."""
    overlap_ms = overlap * 1000
    made = with_accounts(stored_or_exit(config), lambda accounts: accounts.rotate_key(CLI, key_id_given, overlap_ms))
    _tell_secret(made, "Rotated", as_json=as_json)


@keys.command("revoke")
@click.argument("key_id_given", metavar="ID")
@config_option
@click.option("--now", is_flag=True, help="Cut its calls under way as well.")
@json_option
def revoke_key(key_id_given: str, config: str | None, *, now: bool, as_json: bool) -> None:
    """Have the key ID be refused, everywhere within five seconds."""
    done = with_accounts(stored_or_exit(config), lambda accounts: accounts.revoke_key(CLI, key_id_given, now=now))
    if as_json:
        print_view(key_view(done))
    elif done.revoked_ms is not None and done.revoked_ms < done.updated_ms:
        also = " Its calls under way are cut now." if now else ""
        click.echo(f"{done.id} was revoked already, at {moment_text(done.revoked_ms)}.{also}")
    else:
        click.echo(f"Revoked {done.id}.")
