"""What is the same for every route of the admin API: path, key, rights, query, body, pages, errors."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from gateway.core.accounts import Key, Right, Tier
from gateway.core.ports import StoreUnavailable
from gateway.http.admin.bodies import read_as
from gateway.http.admin.desk import MAX_BODY_BYTES, MAX_QUERY_CHARS
from gateway.http.admin.pages import MAX_ROWS, cursor_text
from gateway.http.admin.routes import AdminRequest, AdminRoute, AdminTable, Reply, json_reply
from gateway.storage.memory import MemoryKeys
from tests.support.admin import open_admin
from tests.support.door import Reply as HttpReply

RIGHTS: dict[str, frozenset[Right]] = {
    "reader": frozenset({"read"}),
    "manager": frozenset({"manage"}),
    "operator": frozenset({"operate"}),
    "caller": frozenset({"inference"}),
}


def secret(name: str) -> str:
    return f"anm-{'sk' if name == 'caller' else 'ak'}-{name}"


KEYS = MemoryKeys(
    {secret(name): Key(f"key_{name}", "acme", Tier("t"), rights=rights) for name, rights in RIGHTS.items()}
)


class Form(Struct, forbid_unknown_fields=True):
    """What the route that takes bodies takes."""

    name: str
    parts: tuple[int, ...] = ()


async def tell(asked: AdminRequest) -> Reply:
    mark = asked.page.mark_of(int, str)
    return json_reply(
        {"tenant": asked.tenant, "params": asked.params, "query": asked.query, "limit": asked.page.limit, "mark": mark}
    )


async def take(asked: AdminRequest) -> Reply:
    form = read_as(Form, asked.body)
    return json_reply({"name": form.name, "parts": form.parts}, 201)


async def lose(asked: AdminRequest) -> Reply:
    raise StoreUnavailable("gone")


TABLE = AdminTable(
    (
        AdminRoute("GET", "things", "read", tell, query=frozenset({"kind"}), paged=True),
        AdminRoute("POST", "things", "manage", take),
        AdminRoute("GET", "things/{id:label}", "read", tell),
        AdminRoute("PUT", "things/{id:label}", "operate", take),
        AdminRoute("GET", "own/{id:request}", "read", tell, open_to_inference=True),
        AdminRoute("GET", "names/{name:text}/parts", "read", tell),
        AdminRoute("GET", "lost", "read", lose),
    )
)


async def ask(
    path: str, name: str = "reader", method: str = "GET", body: bytes = b"", *headers: str, key: str | None = None
) -> HttpReply:
    async with open_admin(TABLE, KEYS, lambda: 1) as door:
        return await door.ask(path, key or secret(name), method, body, *headers)


def told(reply: HttpReply) -> tuple[int, str, Any]:
    error = reply.json["error"]
    return reply.status, error["code"], error["param"]


async def test_answer() -> None:
    """An answer is JSON that nobody may keep, with the request's id."""
    reply = await ask("things/a.b?tenant=acme")

    assert (reply.status, reply.header("content-type")) == (200, "application/json")
    assert (reply.header("cache-control"), reply.header("x-request-id")) == ("no-store", "req_1")
    assert reply.json == {"tenant": "acme", "params": {"id": "a.b"}, "query": {}, "limit": 50, "mark": None}


async def test_head() -> None:
    """HEAD is answered as GET, without the body."""
    reply = await ask("things", method="HEAD")

    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.header("content-length") or 0) > 0


@pytest.mark.parametrize(
    "path",
    ["nothing", "things/", "things/a/b", "things/a%2Fb", "things/-a", f"things/{'a' * 65}", "own/req_1", "things//",
     "names/%00/parts", "names/%ff/parts", f"names/{'a' * 257}/parts", "names//parts", "Things"],
)  # fmt: skip
async def test_unknown_path(path: str) -> None:
    """What is no route, or has a parameter that no thing can be called by, is 404 in the envelope of the prefix."""
    assert told(await ask(path)) == (404, "not_found", None)


async def test_malformed_id_before_the_key() -> None:
    """Who has no key is told so, whatever the id in the path."""
    assert told(await ask("things/-a", key="anm-ak-nobody")) == (401, "invalid_api_key", None)


async def test_decoded_parameter() -> None:
    """A parameter is decoded once, so that any session's name can be told."""
    assert (await ask("names/a%20%252F%C3%A9/parts")).json["params"] == {"name": "a %2Fé"}


async def test_method() -> None:
    """Another method than the route's is 405, and `Allow` names those there are."""
    reply = await ask("things", method="DELETE")

    assert told(reply) == (405, "method_not_allowed", None)
    assert reply.header("allow") == "GET, HEAD, POST"


@pytest.mark.parametrize("key", ["anm-ak-nobody", "anm-sk-nobody", "nonsense", "anm-ak-"])
async def test_other_keys(key: str) -> None:
    """An unknown and a malformed key get the very same 401, and are told not to try again."""
    reply = await ask("things", key=key)

    assert told(reply) == (401, "invalid_api_key", None)
    assert reply.header("x-should-retry") == "false"
    assert reply.body == (await ask("things", key="anm-ak-unknown")).body


async def test_a_key_for_inference() -> None:
    """A good key of the other kind is 403, and its message says which kind is wanted."""
    reply = await ask("things", "caller")

    assert told(reply) == (403, "right_denied", None)
    assert (
        reply.json["error"]["message"]
        == "This is an inference key (anm-sk-...); the admin API takes admin keys (anm-ak-...)."
    )


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [("things", "GET", "reader manager operator"), ("things", "POST", "manager operator"),
     ("things/a", "PUT", "operator"), (f"own/req_{'0' * 32}", "GET", "reader manager operator caller")],
)  # fmt: skip
async def test_rights(path: str, method: str, allowed: str) -> None:
    """Each right includes the lesser ones; a key that lacks it is told which the route needs."""
    statuses = {}
    for name in RIGHTS:
        body = b'{"name":"a"}' if method != "GET" else b""
        statuses[name] = (await ask(path, name, method, body)).status

    done = 200 if method == "GET" else 201
    assert statuses == {name: done if name in allowed.split() else 403 for name in RIGHTS}


async def test_tenant_of_others() -> None:
    """Another tenant's name in the query is not found, whether or not there is one of it; operators may name any."""
    assert told(await ask("things?tenant=other", "manager")) == (404, "not_found", None)
    assert (await ask("things?tenant=other", "operator")).json["tenant"] == "other"
    assert (await ask("things", "operator")).json["tenant"] is None


@pytest.mark.parametrize(
    ("query", "param"),
    [("color=red", "color"), ("kind=a&kind=b", "kind"), ("kind=", "kind"), ("kind=%00", "kind"), ("kind=%ff", "kind"),
     ("limit=0", "limit"), ("limit=201", "limit"), ("limit=1e1", "limit"), ("limit=%C2%B2", "limit"),
     ("limit=-1", "limit"), ("limit=1&limit=1", "limit"), ("cursor=%21", "cursor"), ("cursor=e30", "cursor"),
     ("%0d%0a=1", None), ("&".join(f"a{n}=1" for n in range(21)), None), (f"kind={'a' * MAX_QUERY_CHARS}", None)],
)  # fmt: skip
async def test_bad_query(query: str, param: str | None) -> None:
    """An unknown, repeated, empty or senseless parameter is 400, and named where its name is plain."""
    assert told(await ask(f"things?{query}")) == (400, "invalid_request", param)


async def test_query_of_a_route_without_pages() -> None:
    """`limit` and `cursor` are parameters of listings alone."""
    assert told(await ask("things/a?limit=1")) == (400, "invalid_request", "limit")


async def test_cursor() -> None:
    """A cursor leads behind the row that it was made of, on the listing that gave it."""
    cursor = cursor_text("things", (2**63 - 1, "key_1"))

    reply = await ask(f"things?limit={MAX_ROWS}&cursor={cursor}&kind=a")

    assert (reply.json["limit"], reply.json["mark"]) == (MAX_ROWS, [2**63 - 1, "key_1"])


@pytest.mark.parametrize(
    "mark",
    [["things", ["a", 1]], ["things", [1]], ["other", [1, "a"]], ["things", [2**64, "a"]], ["things", [-1, "a"]],
     ["things", [1, "\0"]], ["things", [True, "a"]], ["things", {}], ["things", [1, ["a"]]]],
)  # fmt: skip
async def test_forged_cursor(mark: object) -> None:
    """A cursor that the listing cannot have given is 400 and reaches no query."""
    cursor = base64.urlsafe_b64encode(msgspec.json.encode(mark)).rstrip(b"=").decode()

    assert told(await ask(f"things?cursor={cursor}")) == (400, "invalid_request", "cursor")


async def test_body() -> None:
    """A JSON object that fits the route's form is taken."""
    reply = await ask("things", "manager", "POST", b'{"name":"a","parts":[1,2]}')

    assert (reply.status, reply.json) == (201, {"name": "a", "parts": [1, 2]})


@pytest.mark.parametrize(
    ("body", "param"),
    [(b"", "name"), (b"[]", None), (b"{", None), (b'{"name":"a","name":"b"}', "name"), (b"{}", "name"),
     (b'{"name":1}', "name"), (b'{"name":"a","color":1}', "color"), (b'{"name":"a","parts":[1,"x"]}', "parts[1]"),
     (b'{"name":"a","parts":[1.5]}', "parts[0]"), (b'{"name":"\\ud800"}', None), (b'{"name":' + b"[" * 99, None)],
)  # fmt: skip
async def test_bad_body(body: bytes, param: str | None) -> None:
    """A body that is no such object, or has a key twice, is 400, and `param` names the field at fault."""
    assert told(await ask("things", "manager", "POST", body)) == (400, "invalid_request", param)


async def test_long_body() -> None:
    """A body longer than any thing of ours is refused unread."""
    reply = await ask("things", "manager", "POST", b"{}", f"Content-Length: {MAX_BODY_BYTES + 1}")

    assert told(reply) == (413, "request_too_large", None)


async def test_key_before_body() -> None:
    """Who may not ask is told so before the body is read: a stranger cannot make us hold any."""
    reply = await ask("things", "caller", "POST", b"", "Content-Length: 9999999")

    assert told(reply) == (403, "right_denied", None)


async def test_lost_database() -> None:
    """A database that cannot be asked is 503 with a time to wait, and nothing of its words."""
    reply = await ask("lost")

    assert told(reply) == (503, "storage_unavailable", None)
    assert reply.header("retry-after") == "2"
    assert b"gone" not in reply.body


async def test_unknown_keys_without_a_database() -> None:
    """A key that cannot be looked up now is 503, not 401: clients would throw a good one away."""

    class Lost:
        async def find(self, secret: str) -> Key | None:
            raise StoreUnavailable("gone")

    async with open_admin(TABLE, Lost(), lambda: 1) as door:
        reply = await door.ask("things", "anm-ak-stranger")

    assert (reply.status, reply.code) == (503, "storage_unavailable")


def test_table() -> None:
    """A path and method have one row, and types of parameters are known."""
    row = AdminRoute("GET", "a/{id:label}", "read", tell)

    assert row.template == "/anoman/v1/a/{id}"
    with pytest.raises(ValueError, match="two routes"):
        AdminTable((row, row))
    with pytest.raises(ValueError, match="no such type"):
        AdminTable((AdminRoute("GET", "a/{id:colour}", "read", tell),))
