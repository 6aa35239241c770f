"""`gateway tenants` and `gateway keys` on a SQLite file, from nothing."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.__main__ import main
from gateway.core.credentials import is_well_formed
from gateway.wire.moments import moment_text


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and no configuration."""
    monkeypatch.chdir(tmp_path)
    for name in ("GATEWAY_CONFIG", "DATABASE_URL", "GATEWAY_STORAGE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words), prog_name="gateway")


def told(*words: str) -> Any:
    """What a command prints with `--json`, which it has to succeed at."""
    done = run(*words, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_first_key() -> None:
    """Two commands lead from nothing to a key, which is alone on standard output."""
    tenant = run("tenants", "create", "acme")
    key = run("keys", "create", "--tenant", "acme")

    assert (tenant.exit_code, tenant.stdout) == (0, "Created the tenant acme, on the tier enterprise.\n")
    assert key.exit_code == 0
    assert is_well_formed(key.stdout.rstrip("\n"))
    assert "shown this once" in key.stderr
    assert key.stdout.strip() not in key.stderr


def test_everything_about_a_key() -> None:
    """Every option reaches the key."""
    run("tenants", "create", "acme")
    options = (
        "--name=n --tier=enterprise --rpm=5 --inflight=2 --class=mid --class=budget --model=gpt-* --model=claude "
        "--region-preference=sg_only --prefer-batch --budget=month=50 --budget=session:total=0.5 --when-blind=closed "
        "--log-bodies --expires=2999-01-31"
    )
    made = told("keys", "create", "--tenant", "acme", *options.split())

    assert {**made, "id": "", "last4": "", "secret": "", "created_ms": 0, "updated_ms": 0} == {
        "id": "", "tenant": "acme", "name": "n", "prefix": "anm-sk", "last4": "", "tier": "enterprise",
        "limits": {"rpm": 5, "inflight": 2, "classes": ["mid", "budget"]}, "rights": ["inference"],
        "models": ["gpt-*", "claude"], "region_preference": "sg_only", "prefer_batch": True,
        "budgets": [
            {"scope": "key", "period": "month", "limit_usd": "50.000000"},
            {"scope": "session", "period": "total", "limit_usd": "0.500000"},
        ],
        "policy": None, "when_blind": "closed", "log_bodies": True, "created_ms": 0, "updated_ms": 0,
        "expires_ms": 32474736000000, "revoked_ms": None, "secret": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "rights"),
    [((), ["inference"]), (("--admin",), ["manage"]), (("--admin", "read"), ["read"]),
     (("--admin", "operate"), ["operate"])],
)  # fmt: skip
def test_kinds(option: tuple[str, ...], rights: list[str]) -> None:
    """`--admin` makes a key of the other kind, with the right that is named."""
    run("tenants", "create", "acme")

    made = told("keys", "create", "--tenant", "acme", *option)

    assert made["rights"] == rights
    assert made["secret"].startswith("anm-ak-" if option else "anm-sk-")


def test_list() -> None:
    """Keys are listed newest first with what they are told by, and no secret."""
    for tenant in ("acme", "other"):
        run("tenants", "create", tenant)
    first, _, third = (told("keys", "create", "--tenant", tenant) for tenant in ("acme", "other", "acme"))
    run("keys", "revoke", first["id"])

    listed = run("keys", "list", "--tenant", "acme").stdout

    assert re.findall(r"key_\w+", listed) == [third["id"], first["id"]]
    assert re.findall(r"active|revoked", listed) == ["active", "revoked"]
    assert third["secret"][7:-4] not in listed
    assert len(run("keys", "list").stdout.splitlines()) == 1 + 3


def test_update() -> None:
    """A key's name, limits and budgets can be changed; limits join those it has, budgets replace them."""
    run("tenants", "create", "acme")
    made = told("keys", "create", "--tenant", "acme", "--rpm", "5", "--budget", "month=50")["id"]

    changed = told("keys", "update", made, "--name", "n", "--inflight", "2", "--budget", "session:day=1.50")
    head, line = run("keys", "list").stdout.splitlines()
    emptied = told("keys", "update", made, "--no-limits", "--no-budgets")
    nothing = run("keys", "update", made)

    assert (changed["name"], changed["limits"]) == ("n", {"rpm": 5, "inflight": 2})
    assert [budget["scope"] for budget in changed["budgets"]] == ["session"]
    assert head.split() == ["id", "secret", "tenant", "rights", "state", "tier", "limits", "budgets", "name"]
    assert line.split()[3:] == ["inference", "active", "-", "rpm=5,inflight=2", "session:day=1.500000", "n"]
    assert (emptied["name"], emptied["limits"], emptied["budgets"]) == ("n", {}, [])
    assert (nothing.exit_code, nothing.stderr) == (1, "Say what to change; --help lists it.\n")


def test_rotate_and_revoke() -> None:
    """A rotated key keeps its id and gets another secret; a revoked one is none that could be."""
    run("tenants", "create", "acme")
    made = told("keys", "create", "--tenant", "acme")

    rotated = told("keys", "rotate", made["id"], "--overlap", "60")
    revoked = told("keys", "revoke", made["id"], "--now")
    again = run("keys", "rotate", made["id"])

    assert rotated["id"] == made["id"]
    assert rotated["secret"] != made["secret"]
    assert revoked["revoked_ms"] is not None
    assert (again.exit_code, again.stdout, again.stderr) == (1, "", f"The key {made['id']} is revoked.\n")


def test_revoke_again() -> None:
    """Of a key that is revoked already the command says so, and since when, and cuts its calls where it is to."""
    run("tenants", "create", "acme")
    made = told("keys", "create", "--tenant", "acme")

    first = run("keys", "revoke", made["id"]).stdout
    (listed,) = [json.loads(line) for line in run("keys", "list", "--json").stdout.splitlines()]
    again = run("keys", "revoke", made["id"]).stdout
    cut = run("keys", "revoke", made["id"], "--now").stdout

    already = f"{made['id']} was revoked already, at {moment_text(listed['revoked_ms'])}."
    assert first == f"Revoked {made['id']}.\n"
    assert (again, cut) == (f"{already}\n", f"{already} Its calls under way are cut now.\n")


def test_tenants() -> None:
    """A tenant's budgets are replaced or taken away, and it is disabled and enabled."""
    run("tenants", "create", "acme", "--name", "Acme Inc", "--budget", "month=500", "--budget", "session:day=1")
    replaced = told("tenants", "update", "acme", "--budget", "day=5", "--disable")
    emptied = told("tenants", "update", "acme", "--no-budgets", "--enable", "--tier", "enterprise")

    assert (replaced["name"], replaced["budgets"]) == (
        "Acme Inc",
        [{"scope": "tenant", "period": "day", "limit_usd": "5.000000"}],
    )
    assert replaced["disabled_ms"] is not None
    assert (emptied["budgets"], emptied["disabled_ms"]) == ([], None)
    head, line = run("tenants", "list").stdout.splitlines()
    assert head.split() == ["tenant", "tier", "state", "budgets", "name"]
    assert line.split() == ["acme", "enterprise", "active", "-", "Acme", "Inc"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("tenants", "create", "acme"), 1, "There is a tenant acme already."),
        (("tenants", "create", "new", "--tier", "none"), 1, "tier: there is no tier none"),
        (("tenants", "create", "../x"), 2, "not a name of at most 64"),
        (("tenants", "update", "acme"), 1, "Say what to change"),
        (("tenants", "update", "nobody", "--enable"), 1, "There is no tenant nobody."),
        (("keys", "create", "--tenant", "nobody"), 1, "There is no tenant nobody."),
        (("keys", "create", "--tenant", "acme", "--policy", "none"), 1, "policy: there is no policy none"),
        (("keys", "create", "--tenant", "acme", "--rpm", "-3"), 1, "rpm: -3 is not within"),
        (("keys", "create", "--tenant", "acme", "--rpm", "0"), 1, "rpm: 0 is not within"),
        (("keys", "create", "--tenant", "acme", "--budget", "year=1"), 2, "is no budget"),
        (("keys", "create", "--tenant", "acme", "--budget", "tenant:day=1"), 2, "is no budget"),
        (("keys", "create", "--tenant", "acme", "--budget", "day=1e3"), 2, "plain decimal"),
        (("keys", "create", "--tenant", "acme", "--expires", "2001-01-01"), 2, "has passed"),
        (("keys", "create", "--tenant", "acme", "--expires", "soon"), 2, "a date such as"),
        (("keys", "list", "--tenant", "nobody"), 1, "There is no tenant nobody."),
        (("keys", "revoke", "key_000000000000"), 1, "There is no key key_000000000000."),
    ],
)
def test_refused(words: tuple[str, ...], code: int, said: str) -> None:
    """What cannot be done is one clear line on standard error, and nothing on the other."""
    run("tenants", "create", "acme")

    done = run(*words)

    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


def test_no_database(folder: Path) -> None:
    """A database that cannot be used is said so, without a traceback."""
    (folder / "gateway.toml").write_text('[storage]\ndatabase_url = "sqlite:///nowhere/gateway.db"\n')

    done = run("tenants", "create", "acme")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "The database cannot be used: OperationalError: unable to open database file\n"


@pytest.mark.parametrize("what", ["tenants", "keys"])
def test_a_list_makes_no_database(folder: Path, what: str) -> None:
    """Where there is no database yet, a look says so, and leaves none behind."""
    done = run(what, "list")

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "There is no database yet: gateway.db. It is made when the gateway first serves.\n"
    assert not list(folder.iterdir())


def test_a_model_that_is_none(folder: Path) -> None:
    """A key for a model that the file does not have is made, as another file may have it, with a warning."""
    (folder / "gateway.toml").write_text("[catalogue]\nshipped = true\n" + OPENAI)
    run("tenants", "create", "acme")

    done = run("keys", "create", "--tenant", "acme", "--model", "gpt-5*", "--model", "nosuch")

    assert (done.exit_code, done.stdout.startswith("anm-sk-")) == (0, True)
    assert done.stderr.startswith("Warning: no model of this configuration is called nosuch.\n")
    assert done.stderr.count("Warning") == 1


OPENAI = """
[providers.openai]
preset = "openai"
api_key = "sk-none"
"""
BROKEN = """
[storage]
database_url = "sqlite:///other.db"
[server]
port = 99999999
[policies.later]
tools = 1
[providers.p]
preset = "nobody"
[tiers.small]
rpm = -1
[keys."anm-sk-secret"]
tier = "none"
"""


def test_what_else_is_wrong_is_passed_over(folder: Path) -> None:
    """Commands for accounts need to know the database alone; what is wrong with the rest is said, without a secret."""
    (folder / "gateway.toml").write_text(BROKEN)

    done = run("tenants", "create", "acme")
    listed = run("usage")

    assert (done.exit_code, done.stdout) == (0, "Created the tenant acme, on the tier enterprise.\n")
    assert (folder / "other.db").is_file()
    assert not (folder / "gateway.db").exists()
    places = ("server.port: ", "policies.later.tools: ", "providers.p.preset: ", "tiers.small.rpm: ")
    for place in (*places, "keys.(number 1).tier: "):
        assert place in done.stderr, place
    assert "anm-sk-secret" not in done.stderr
    assert "[storage]" in done.stderr
    assert listed.exit_code == 0


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[storage]\ndatabase_url = 5\n", "storage.database_url: "),
        ("storage = 5\n", "storage: "),
        ('[storage]\ndatabase = "sqlite:///other.db"\n', "storage.database: "),
        ('[storge]\ndatabase_url = "sqlite:///other.db"\n', "storge: "),
        ("[storage\n", "gateway.toml: "),
    ],
)
def test_an_unknown_database(folder: Path, text: str, place: str) -> None:
    """No database is made or changed where it cannot be told which one is meant."""
    (folder / "gateway.toml").write_text(f"[server]\nport = 99999999\n{text}" if text[0] == "[" else text)

    done = run("tenants", "create", "acme")

    assert (done.exit_code, done.stdout) == (1, "")
    assert place in done.stderr
    assert [path.name for path in folder.iterdir()] == ["gateway.toml"]


@pytest.mark.parametrize(
    "words",
    [("keys", "revoke", "key_\udcff"), ("keys", "create", "--tenant", "\udcff"), ("tenants", "create", "a\udcff"),
     ("keys", "create", "--tenant", "acme", "--model", "m", "--model", "\udcff"), ("usage", "--tenant", "\udcff"),
     ("traces", "erase", "\udcff", "--yes"), ("models", "explain", "\udcff")],
)  # fmt: skip
def test_no_text(words: tuple[str, ...]) -> None:
    """An argument that is not UTF-8 is one clear line."""
    run("tenants", "create", "acme")

    done = run(*words)

    assert (done.exit_code, done.stdout) == (2, "")
    assert re.search(r"^Error: Invalid value for .*: .*(this is no UTF-8 text|is not a name).*$", done.stderr, re.M)
    assert done.exception is None or isinstance(done.exception, SystemExit)


@pytest.mark.parametrize("words", [("tenants", "list"), ("keys", "create", "--tenant", "acme"), ("usage",)])
def test_tables_of_a_newer_version(folder: Path, words: tuple[str, ...]) -> None:
    """A command does not touch a database that a newer version has migrated, and says which it is."""
    run("tenants", "create", "acme")
    with closing(sqlite3.connect(folder / "gateway.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    done = run(*words)

    assert (done.exit_code, done.stdout) == (1, "")
    assert "a newer version of the gateway has made its tables (revision 9999, " in done.stderr
