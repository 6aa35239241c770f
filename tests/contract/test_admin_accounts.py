"""Tenants, keys, tiers, policies and the audit log over the admin API, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.storage.database import Database
from gateway.storage.migrations import upgrade
from tests.contract.administered import administered
from tests.support.postgres import Postgres

OPERATOR: Any = {"tenant": "house", "right": "operate"}


@pytest.fixture
def served(url: str, tabled: Database) -> str:
    """The URL of a database that has its tables."""
    return url


async def test_tenant(served: str) -> None:
    """An operator makes a tenant, changes what it names, and finds it among all."""
    async with administered(served) as api:
        budget = {"scope": "tenant", "period": "month", "limit_usd": "500"}
        made = await api.json("POST", "tenants", {"id": "new", "tier": "small", "budgets": [budget]}, **OPERATOR)
        changed = await api.json("PATCH", "tenants/new", {"name": "New", "is_disabled": True}, **OPERATOR)
        listed = await api.json("GET", "tenants", **OPERATOR)
        again = await api.refusal("POST", "tenants", {"id": "new", "tier": "small"}, **OPERATOR)

    assert made == {
        "id": "new", "name": "new", "tier": "small", "created_ms": made["created_ms"],
        "updated_ms": made["created_ms"], "disabled_ms": None, "budgets": [{**budget, "limit_usd": "500.000000"}],
        "policy": None,
    }  # fmt: skip
    assert (changed["name"], changed["tier"], changed["disabled_ms"]) == ("New", "small", made["created_ms"])
    assert [tenant["id"] for tenant in listed["data"]] == ["acme", "house", "new", "umbrella"]
    assert again == (409, "conflict", None)


async def test_own_tenant(served: str) -> None:
    """Others see their own tenant alone, and cannot change it."""
    async with administered(served) as api:
        listed = await api.json("GET", "tenants", right="read")
        own = await api.json("GET", "tenants/acme", right="read")
        other = await api.refusal("GET", "tenants/umbrella")
        change = await api.refusal("PATCH", "tenants/acme", {"tier": "enterprise"})

    assert [tenant["id"] for tenant in listed["data"]] == ["acme"]
    assert own == listed["data"][0]
    assert other == (404, "not_found", None)
    assert change == (403, "right_denied", None)


async def test_key(served: str) -> None:
    """A key's life: made with a secret that works and is never told again, changed, rotated, revoked."""
    body = {
        "name": "k", "limits": {"rpm": 3}, "models": ["gpt-*"], "region_preference": "sg_only", "when_blind": "closed",
        "budgets": [{"scope": "session", "period": "day", "limit_usd": "0.5"}], "log_bodies": True,
    }  # fmt: skip
    async with administered(served) as api:
        made = await api.json("POST", "keys", body)
        path = f"keys/{made['id']}"
        found = await api.stores.keys.find(made["secret"])
        seen = await api.json("GET", path, right="read")
        changed = await api.json("PATCH", path, {"limits": {"rpm": 2}, "models": None, "expires_ms": 2**42})
        rotated = await api.json("POST", f"{path}/rotate", {"overlap_s": 60})
        both = [await api.stores.keys.find(text) for text in (made["secret"], rotated["secret"])]
        revoked = await api.json("POST", f"{path}/revoke")
        none = [await api.stores.keys.find(text) for text in (made["secret"], rotated["secret"])]
        late = await api.refusal("PATCH", path, {"name": "x"})

    assert found is not None
    assert (found.id, found.tenant, found.tier.rpm, found.models) == (made["id"], "acme", 3, ("gpt-*",))
    assert seen == {name: value for name, value in made.items() if name not in ("secret", "warnings")}
    assert (made["warnings"], changed["warnings"]) == ([], [])
    assert (changed["name"], changed["limits"], changed["models"]) == ("k", {"rpm": 2}, None)
    assert [key.id if key else None for key in both] == [made["id"]] * 2
    assert revoked["revoked_ms"] is not None
    assert none == [None, None]
    assert late == (409, "conflict", None)


async def test_a_model_that_is_none(served: str) -> None:
    """A key for a model that is not served is made all the same, as it may come; the answer has a warning."""
    async with administered(served) as api:
        made = await api.json("POST", "keys", {"models": ["gpt-4o", "gpt-4oo", "clau*", "m*"]})
        changed = await api.json("PATCH", f"keys/{made['id']}", {"models": ["nosuch"]})

    assert made["models"] == ["gpt-4o", "gpt-4oo", "clau*", "m*"]
    assert made["warnings"] == [
        f"models: {name} is no model that this gateway serves now" for name in ("gpt-4oo", "m*")
    ]
    assert changed["warnings"] == ["models: nosuch is no model that this gateway serves now"]


async def test_pages_of_keys(served: str) -> None:
    """Keys come newest first, page by page; an operator sees all, or those of the tenant it names."""
    async with administered(served) as api:
        first = await api.json("GET", "keys?limit=2", **OPERATOR)
        rest = await api.json("GET", f"keys?limit=200&cursor={first['next']}", **OPERATOR)
        named = await api.json("GET", "keys?tenant=umbrella", **OPERATOR)
        total = len(api.keys)

    ids = [key["id"] for key in (*first["data"], *rest["data"])]
    assert len(set(ids)) == len(ids) == total
    assert rest["next"] is None
    assert {key["tenant"] for key in named["data"]} == {"umbrella"}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"name": 1}, "name"), ({"name": "a\0"}, "name"), ({"name": "a" * 201}, "name"), ({"color": "red"}, "color"),
        ({"name": "\u202ea"}, "name"), ({"name": "a\ufeff"}, "name"),
        ({"rights": []}, "rights"), ({"rights": ["inference", "read"]}, "rights"), ({"rights": ["own"]}, "rights[0]"),
        ({"tier": "none"}, "tier"),
        ({"limits": {"rpm": 0}}, "limits.rpm"), ({"limits": {"rpm": 1.5}}, "limits.rpm"),
        ({"limits": {"rpm": "3"}}, "limits.rpm"),
        ({"limits": {"speed": 1}}, "limits.speed"), ({"limits": {"classes": ["royal"]}}, "limits.classes"),
        ({"limits": []}, "limits"),
        ({"models": []}, "models"), ({"models": ["a", "b c"]}, "models[1]"), ({"models": ["*a"]}, "models[0]"),
        ({"region_preference": "moon"}, "region_preference"), ({"policy": "none"}, "policy"),
        ({"budgets": [{"scope": "key", "period": "day", "limit_usd": "1e3"}]}, "budgets[0].limit_usd"),
        ({"budgets": [{"scope": "key", "period": "day", "limit_usd": 1}]}, "budgets[0].limit_usd"),
        ({"budgets": [{"scope": "tenant", "period": "day", "limit_usd": "1"}]}, "budgets[0].scope"),
        ({"budgets": [{"scope": "key", "period": "year", "limit_usd": "1"}]}, "budgets[0].period"),
        ({"budgets": [{"scope": "key", "period": "day"}]}, "budgets[0].limit_usd"),
        ({"budgets": [{"scope": "key", "period": "day", "limit_usd": "1"}] * 2}, "budgets[1]"),
        ({"expires_ms": 1}, "expires_ms"), ({"expires_ms": 2**60}, "expires_ms"),
        ({"prefer_batch": "yes"}, "prefer_batch"), ({"tier": "a\0"}, "tier"), ({"policy": "a\0"}, "policy"),
    ],
)  # fmt: skip
async def test_senseless_key(served: str, body: object, param: str) -> None:
    """A field that makes no sense is named, and no key is made."""
    async with administered(served) as api:
        before = await api.json("GET", "keys")
        refused = await api.refusal("POST", "keys", body)
        after = await api.json("GET", "keys")

    assert refused == (400, "invalid_request", param)
    assert after == before


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rights": ["operate"]}, "rights"), ({"tier": "enterprise"}, "tier"), ({"limits": {"rpm": 11}}, "limits.rpm"),
        ({"limits": {"classes": ["ultra"]}}, "limits.classes"),
    ],
)  # fmt: skip
async def test_key_beyond_its_makers_rights(served: str, body: object, param: str) -> None:
    """What a manager may not give is refused as a right that it lacks, by field, and no key is made or changed."""
    async with administered(served) as api:
        mine = await api.json("POST", "keys", {})
        before = await api.json("GET", "keys")
        made = await api.ask("POST", "keys", body)
        changed = await api.refusal("PATCH", f"keys/{mine['id']}", body)
        after = await api.json("GET", "keys")

    error = made.json["error"]
    assert (made.status, error["code"], error["param"]) == (403, "right_denied", param)
    assert error["message"].startswith(f"{param}: ")
    assert "only a key with the right `operate` may give" in error["message"]
    assert changed == ((400, "invalid_request", "rights") if param == "rights" else (403, "right_denied", param))
    assert after == before


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        ("keys/nope", "keys/key_000000000000"), ("tenants/-", "tenants/nope"), ("policies/-", "policies/nope"),
        ("traces/nope", f"traces/req_{'0' * 32}"), ("receipts/nope", f"receipts/req_{'0' * 32}"),
    ],
)  # fmt: skip
async def test_id_that_is_none(served: str, path: str, unknown: str) -> None:
    """An id that nothing can have is not there as one that nothing has, in the same words."""
    async with administered(served) as api:
        odd, plain = await api.ask("GET", path), await api.ask("GET", unknown)

    words = plain.json["error"]["message"].replace(unknown.partition("/")[2], path.partition("/")[2])
    assert (odd.status, plain.status) == (404, 404)
    assert odd.json["error"]["message"] == words


async def test_rights_on_keys(served: str) -> None:
    """A reader changes nothing; a manager neither makes keys elsewhere nor touches an operator's in its own tenant."""
    async with administered(served) as api:
        operators = api.keys["house", "operate"].key.id
        reader = await api.refusal("POST", "keys", {}, right="read")
        elsewhere = await api.refusal("POST", "keys", {"tenant": "umbrella"})
        rotated = await api.refusal("POST", f"keys/{operators}/rotate", tenant="house", right="manage")
        made = await api.json(
            "POST", "keys", {"tenant": "acme", "tier": "enterprise", "rights": ["manage"]}, **OPERATOR
        )

    assert reader == (403, "right_denied", None)
    assert elsewhere == rotated == (404, "not_found", None)
    assert (made["tenant"], made["tier"], made["prefix"]) == ("acme", "enterprise", "anm-ak")


async def test_tenant_that_an_operator_names(served: str) -> None:
    """Where the query names a tenant, a new key is its own, and nothing of another tenant is changed."""
    async with administered(served) as api:
        key = f"keys/{api.keys['umbrella', 'inference'].key.id}"
        made = await api.json("POST", "keys?tenant=umbrella", {}, **OPERATOR)
        other = await api.refusal("POST", "keys?tenant=umbrella", {"tenant": "acme"}, **OPERATOR)
        senseless = await api.refusal("POST", "keys", {"tenant": "a\0"}, **OPERATOR)
        refused = [
            await api.refusal("PATCH", "tenants/umbrella?tenant=acme", {"name": "x"}, **OPERATOR),
            await api.refusal("PATCH", f"{key}?tenant=acme", {"name": "x"}, **OPERATOR),
            await api.refusal("POST", f"{key}/rotate?tenant=acme", **OPERATOR),
            await api.refusal("POST", f"{key}/revoke?tenant=acme", **OPERATOR),
        ]
        revoked = await api.json("POST", f"{key}/revoke?tenant=umbrella", **OPERATOR)

    assert made["tenant"] == "umbrella"
    assert senseless == (400, "invalid_request", "tenant")
    assert {other, *refused} == {(404, "not_found", None)}
    assert revoked["tenant"] == "umbrella"


@pytest.mark.parametrize("overlap_s", [-1, 30 * 86_400 + 1, "a"])
async def test_overlap(served: str, overlap_s: object) -> None:
    """An overlap is from nothing to a month."""
    async with administered(served) as api:
        path = f"keys/{api.keys['acme', 'inference'].key.id}/rotate"

        assert await api.refusal("POST", path, {"overlap_s": overlap_s}) == (400, "invalid_request", "overlap_s")


async def test_tier(served: str) -> None:
    """A tier of the database counts for all who are on it from then on, before the file's of its name."""
    async with administered(served) as api:
        caller = api.keys["acme", "inference"].text
        made = await api.json("PUT", "tiers/small", {"limits": {"rpm": 7}}, **OPERATOR)
        during = await api.stores.keys.find(caller)
        listed = await api.json("GET", "tiers?limit=3", **OPERATOR)
        rest = await api.json("GET", f"tiers?cursor={listed['next']}", **OPERATOR)
        gone = await api.json("DELETE", "tiers/small", **OPERATOR)
        after = await api.stores.keys.find(caller)
        seen = await api.json("GET", "tiers/small", **OPERATOR)

    assert made == {"name": "small", "source": "database", "limits": {"rpm": 7}}
    names = [tier["name"] for tier in (*listed["data"], *rest["data"])]
    assert names == ["enterprise", "payg", "pro", "small", "starter"]
    assert rest["data"][0] == made
    assert {tier["source"] for tier in listed["data"]} == {"shipped"}
    assert listed["data"][2]["limits"]["burst"] == {"capacity": 600, "refill_per_min": 10}
    assert gone == {"name": "small", "deleted": True}
    assert (during and during.tier.rpm, after and after.tier.rpm) == (7, 10)
    assert seen == {"name": "small", "source": "file", "limits": {"rpm": 10, "classes": ["budget", "mid"]}}


@pytest.mark.parametrize(
    ("limits", "param"),
    [
        ({"burst": {"capacity": 1.5, "refill_per_min": 1}}, "limits.burst.capacity"),
        ({"classes": ["mid", 1e9]}, "limits.classes[1]"),
    ],
)
async def test_fractions_of_limits(served: str, limits: object, param: str) -> None:
    """A number with a fraction is named however deep it stands, and told in words alone."""
    async with administered(served) as api:
        reply = await api.ask("PUT", "tiers/own", {"limits": limits}, **OPERATOR)

    assert (reply.status, reply.json["error"]["param"]) == (400, param)
    assert reply.json["error"]["message"] == f"{param}: is not a whole number."


async def test_pages_of_tiers(postgres: Postgres) -> None:
    """Each tier is on one page, also where the database has an order of its own for names."""
    postgres.sql("CREATE DATABASE tiers TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en'")  # "a" before "B"
    url = postgres.url("tiers")
    await asyncio.to_thread(upgrade, url)
    async with administered(url) as api:
        for name in ("B", "a", "c-1", "cb"):
            await api.json("PUT", f"tiers/{name}", {"limits": {}}, **OPERATOR)
        page = await api.json("GET", "tiers?limit=1", **OPERATOR)
        names = [tier["name"] for tier in page["data"]]
        while page["next"]:
            page = await api.json("GET", f"tiers?limit=1&cursor={page['next']}", **OPERATOR)
            names += [tier["name"] for tier in page["data"]]

    assert names == ["B", "a", "c-1", "cb", "enterprise", "payg", "pro", "small", "starter"]


async def test_tier_in_use(served: str) -> None:
    """A tier that somebody is on is not taken away, as their keys would be refused; revoked keys are anyhow."""
    async with administered(served) as api:
        await api.json("PUT", "tiers/own", {"limits": {}}, **OPERATOR)
        await api.json("PATCH", "tenants/acme", {"tier": "own"}, **OPERATOR)
        refused = await api.refusal("DELETE", "tiers/own", **OPERATOR)
        await api.json("PATCH", "tenants/acme", {"tier": "small"}, **OPERATOR)
        key = await api.json("POST", "keys", {"tier": "own"}, **OPERATOR)
        by_a_key = await api.refusal("DELETE", "tiers/own", **OPERATOR)
        await api.json("POST", f"keys/{key['id']}/revoke", **OPERATOR)
        gone = await api.json("DELETE", "tiers/own", **OPERATOR)
        unknown = await api.refusal("DELETE", "tiers/none", **OPERATOR)
        wrong = await api.refusal("PUT", "tiers/own", {"limits": {"rpm": -1}}, **OPERATOR)

    assert refused == by_a_key == (409, "conflict", None)
    assert gone["deleted"]
    assert unknown == (404, "not_found", None)
    assert wrong == (400, "invalid_request", "limits.rpm")


async def test_policies(served: str) -> None:
    """A tenant has policies of its own beside everybody's of the same name; rules that would not be enforced are
    refused."""
    async with administered(served) as api:
        await api.json("PUT", "policies/strict", {"rules": {}}, **OPERATOR)
        shared = await api.json("GET", "policies/strict")
        await api.json("PUT", "policies/strict", {"rules": {}})
        own = await api.json("GET", "policies/strict")
        listed = [await api.json("GET", "policies", tenant=tenant) for tenant in ("acme", "umbrella")]
        everybodys = await api.refusal("DELETE", "policies/strict", tenant="umbrella")
        wrong = await api.refusal("PUT", "policies/strict", {"rules": {"tools": {"deny": []}}})
        await api.json("POST", "keys", {"policy": "strict"})
        await api.json("DELETE", "policies/strict")
        in_use = await api.refusal("DELETE", "policies/strict", **OPERATOR)

    assert (shared["tenant"], own["tenant"]) == (None, "acme")
    assert [[policy["tenant"] for policy in page["data"]] for page in listed] == [[None, "acme"], [None]]
    assert everybodys == (404, "not_found", None)
    assert wrong == (400, "invalid_request", "rules.tools.deny")
    assert in_use == (409, "conflict", None)


async def test_rules_with_fractions(served: str) -> None:
    """A threshold is a number like any other; what is none, or is out of bounds, is told by its place."""
    guard = {"mode": "off", "threshold": 0.75}
    async with administered(served) as api:
        put = await api.json("PUT", "policies/p", {"rules": {"guardrails": {"injection": guard}}})
        shown = await api.json("GET", "policies/p")
        wrong = [
            await api.refusal("PUT", "policies/p", {"rules": rules})
            for rules in (
                {"guardrails": {"injection": {**guard, "threshold": 1.5}}},
                {"calls": {"max_tokens": 0.5}},
                {"calls": {"models": [1.5]}},
            )
        ]
        huge = await api.door.ask(
            "policies/p", api.keys["acme", "manage"].text, "PUT", b'{"rules":{"calls":{"max_tokens":1e999}}}'
        )

    assert put["rules"] == shown["rules"] == {"guardrails": {"injection": guard}}
    places = ("rules.guardrails.injection.threshold", "rules.calls.max_tokens", "rules.calls.models")
    assert wrong == [(400, "invalid_request", place) for place in places]
    assert huge.status == 400


async def test_the_policy_of_a_tenant(served: str) -> None:
    """Operators put a tenant under one of everybody's and take it away again; its managers see it, and cannot change
    it, nor what it says."""
    async with administered(served) as api:
        await api.json("PUT", "policies/house", {"rules": {"calls": {"max_tokens": 100}}}, **OPERATOR)
        missing = await api.refusal("PATCH", "tenants/acme", {"policy": "none"}, **OPERATOR)
        put = await api.json("PATCH", "tenants/acme", {"policy": "house"}, **OPERATOR)
        made = await api.json("POST", "tenants", {"id": "new", "tier": "small", "policy": "house"}, **OPERATOR)
        seen = await api.json("GET", "tenants/acme")
        denied = await api.refusal("PATCH", "tenants/acme", {"policy": None})
        everybodys = await api.refusal("PUT", "policies/house?tenant=umbrella", {"rules": {}})
        in_use = await api.refusal("DELETE", "policies/house", **OPERATOR)
        taken = await api.json("PATCH", "tenants/acme", {"policy": None}, **OPERATOR)

    assert missing == (400, "invalid_request", "policy")
    assert put["policy"] == made["policy"] == seen["policy"] == "house"
    assert denied == (403, "right_denied", None)
    assert everybodys == (404, "not_found", None)
    assert in_use == (409, "conflict", None)
    assert taken["policy"] is None


async def test_two_who_make_the_same(served: str) -> None:
    """Of two who put the same at once both succeed, and there is one."""
    async with administered(served) as api:
        replies = await asyncio.gather(
            *(api.ask("PUT", "tiers/new", {"limits": {"rpm": n}}, **OPERATOR) for n in range(1, 5))
        )
        listed = await api.json("GET", "tiers", **OPERATOR)

    assert [reply.status for reply in replies] == [200] * 4
    assert [tier["name"] for tier in listed["data"]].count("new") == 1


async def test_audit(served: str) -> None:
    """Each sees what was changed of its own, newest first, with who did it; operators see from where, and tiers."""
    async with administered(served) as api:
        manager = api.keys["acme", "manage"].key.id
        made = await api.json("POST", "keys", {"name": "k"})
        await api.json("PUT", "tiers/own", {"limits": {}}, **OPERATOR)
        first = await api.json("GET", "audit?limit=1", right="read")
        rest = await api.json("GET", f"audit?cursor={first['next']}", right="read")
        found = await api.json("GET", f"audit?target={made['id']}&actor={manager}&action=key.created", right="read")
        everything = await api.json("GET", "audit?limit=200", **OPERATOR)

    (entry,) = first["data"]
    assert (entry["action"], entry["actor"], entry["target"], entry["tenant"]) == (
        "key.created", manager, made["id"], "acme"
    )  # fmt: skip
    assert entry["details"]["name"] == "k"
    assert "127.0.0.1" not in f"{first} {rest}"
    assert [row["details"]["address"] for row in everything["data"][:2]] == ["127.0.0.1"] * 2
    assert made["secret"][7:-4] not in str(everything)
    assert [row["seq"] for row in rest["data"]] == sorted((row["seq"] for row in rest["data"]), reverse=True)
    assert {row["tenant"] for row in (*first["data"], *rest["data"])} == {"acme"}
    assert found["data"] == [entry]
    assert everything["data"][0]["action"] == "tier.created"


async def test_nothing_to_change(served: str) -> None:
    """A change that names nothing is a mistake."""
    async with administered(served) as api:
        path = f"keys/{api.keys['acme', 'inference'].key.id}"

        assert await api.refusal("PATCH", path, {}) == (400, "invalid_request", None)
