"""The table of routes and the dialects agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.accounts import Key, Tier
from gateway.core.call import CallOptions
from gateway.core.catalog import ClientDialectName, Model, Provider, Route
from gateway.core.money import Price, Weight, parse_weight
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.endpoints import ENDPOINTS, SUPPORTED, find
from gateway.policy.routing import choose

ONE = parse_weight("1")


@pytest.mark.parametrize("name", CLIENT_DIALECTS)
def test_every_dialect_has_its_endpoint(name: str) -> None:
    """Where a dialect says that it is asked for, its own endpoint is, and the 404 names it."""
    dialect = next(row for row in CLIENT_DIALECTS.values() if row.name == name)

    endpoint = find(dialect.path)

    assert endpoint is not None
    assert (endpoint.kind, endpoint.dialect, endpoint.methods) == ("completion", name, ("POST",))
    assert f"POST {dialect.path}" in SUPPORTED


def test_every_endpoint_is_documented() -> None:
    """Each path of the table is in the API's document."""
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()

    assert [path for path in ENDPOINTS if f"{path}`" not in text] == []


def test_what_a_lost_caller_is_told() -> None:
    """The 404 names the endpoints that serve something, as the documents write them."""
    assert SUPPORTED == (
        "POST /v1/chat/completions, POST /anthropic/v1/messages, POST /anthropic/v1/messages/count_tokens, "
        "POST /anoman/v1/playground/run, GET /v1/models"
    )


def test_native_routes_come_first() -> None:
    """A model's routes are asked in their order, but those that speak the endpoint's dialect before the others."""
    spoken: list[tuple[str, ClientDialectName]] = [
        ("a", "anthropic_messages"), ("b", "openai_chat"), ("c", "anthropic_messages"), ("d", "openai_chat")
    ]  # fmt: skip
    one, key = Weight(1, 1), Key("k", "acme", Tier("t"))
    routes = tuple(Route(Provider(name, kind, "https://x", "cloud_direct", "US", one), "m") for name, kind in spoken)
    model = Model("m", "mid", one, Price(1, 1, 1, 1), routes, context_window=1)
    body = b'{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}'
    asked = {}

    for name, dialect in CLIENT_DIALECTS.items():
        found = choose(model, key, dialect.read_call(body, CallOptions(), ()))
        asked[name] = "".join(route.provider.name for route in found)

    assert asked == {"openai_chat": "bdac", "anthropic_messages": "acbd"}
