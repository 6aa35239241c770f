"""The table of routes and the dialects agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.core.call import CallOptions
from gateway.core.catalog import Catalog, Key, Model, Provider, Route, Tier
from gateway.core.errors import GatewayError
from gateway.core.money import Price, parse_weight
from gateway.dialects.registry import DIALECTS
from gateway.http.endpoints import ENDPOINTS, SUPPORTED, find
from gateway.policy.routing import choose

ONE = parse_weight("1")


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_has_its_endpoint(name: str) -> None:
    """Where a dialect says that it is asked for, its own endpoint is, and the 404 names it."""
    dialect = next(row for row in DIALECTS.values() if row.name == name)

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
    assert SUPPORTED == "POST /v1/chat/completions, POST /anthropic/v1/messages, GET /v1/models"


def test_a_model_of_another_dialect() -> None:
    """A model that no route serves in the endpoint's dialect is refused with the path that would."""
    provider = Provider("theirs", "anthropic_messages", "https://x", "cloud_direct", "US", ONE, None)
    model = Model("claude", "mid", ONE, Price(1, 1, 1, 1), (Route(provider, "c"),), context_window=1)
    body = b'{"model":"claude","messages":[{"role":"user","content":"Hi"}]}'
    call = DIALECTS["openai_chat"].read_call(body, CallOptions(), ())

    with pytest.raises(GatewayError) as caught:
        choose(Catalog({"claude": model}, {}), Key("k", "acme", Tier("t")), call)

    assert caught.value.message == "This model is not served by this endpoint; use /anthropic/v1/messages."
    assert (caught.value.kind.code, caught.value.param) == ("model_not_found", "model")
