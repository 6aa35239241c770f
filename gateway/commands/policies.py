"""`gateway policies`: what calls may hold, in the database, changed by whoever runs the gateway."""

from __future__ import annotations

import json
from typing import IO, Any

import click

from gateway.commands.configured import config_option, stored_or_exit
from gateway.commands.looking import need_database
from gateway.commands.options import as_label, json_option, print_view
from gateway.commands.reading import table
from gateway.commands.stored import fail, with_rules
from gateway.commands.words import TextGroup
from gateway.core.errors import GatewayError
from gateway.core.record_views import plain_view
from gateway.core.records import CLI, Policy
from gateway.http.admin.bodies import read_fields
from gateway.http.admin.forms import numbers
from gateway.storage.account_rules import SqlRules

AT_ONCE = 200  # policies in one query of a list
MAX_BYTES = 64 * 1024  # as the admin API takes
_HEAD = ("policy", "tenant", "rules")
_name = click.argument("name", callback=as_label)
_tenant = click.option("--tenant", help="Whose it is; everybody's without one.")


@click.group(cls=TextGroup)
def policies() -> None:
    """Look after policies: what the calls of keys and tenants may hold."""


@policies.command("list")
@config_option
@click.option("--tenant", help="Only those that this one may use: its own and everybody's.")
@json_option
def list_policies(config: str | None, *, tenant: str | None, as_json: bool) -> None:
    """List the policies of the database, by name."""
    stored = stored_or_exit(config)
    need_database(stored.storage.database_url)
    found = with_rules(stored, lambda rules: _all(rules, tenant))
    if as_json:
        for policy in found:
            print_view(plain_view(policy))
    else:
        click.echo(table([_HEAD, *([one.name, one.tenant or "-", ", ".join(one.rules) or "-"] for one in found)]))


async def _all(rules: SqlRules, tenant: str | None) -> list[Policy]:
    found: list[Policy] = []
    while page := await rules.policies(tenant, (found[-1].name, found[-1].tenant or "") if found else None, AT_ONCE):
        found += page
    return found


@policies.command("show")
@_name
@config_option
@_tenant
@json_option
def show_policy(name: str, config: str | None, *, tenant: str | None, as_json: bool) -> None:
    """Print the rules of the policy NAME, which `put` takes again."""
    stored = stored_or_exit(config)
    need_database(stored.storage.database_url)
    found = with_rules(stored, lambda rules: rules.policy(tenant, name))
    print_view(plain_view(found)) if as_json else click.echo(json.dumps(found.rules, indent=2))


@policies.command("put")
@_name
@click.argument("file", type=click.File("rb"))
@config_option
@_tenant
@json_option
def put_policy(name: str, file: IO[bytes], config: str | None, *, tenant: str | None, as_json: bool) -> None:
    """Have the policy NAME be the rules in FILE, a JSON object as in the admin API; - reads them from standard input.

    It holds for the keys under it everywhere within five seconds.
    """
    rules = _rules_in(file)
    done = with_rules(stored_or_exit(config), lambda store: store.put_policy(CLI, tenant, name, rules))
    print_view(plain_view(done)) if as_json else click.echo(f"The policy {done.name} is in force.")


def _rules_in(file: IO[bytes]) -> dict[str, Any]:
    text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        fail(f"These are more than {MAX_BYTES} bytes.")
    if not text.strip():
        fail("There are no rules here; those of a policy that asks for nothing are {}.")
    try:
        rules: dict[str, Any] = numbers(read_fields(text))
    except GatewayError as exc:
        fail(exc.message)
    return rules


@policies.command("delete")
@_name
@config_option
@_tenant
def delete_policy(name: str, config: str | None, *, tenant: str | None) -> None:
    """Take the policy NAME away, unless keys or tenants would be left without."""
    with_rules(stored_or_exit(config), lambda rules: rules.delete_policy(CLI, tenant, name))
    click.echo(f"Deleted the policy {name}.")
