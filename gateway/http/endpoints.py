"""The routes, as a table: exact paths, so that nobody can read another path out of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.core.catalog import ClientDialectName
from gateway.dialects.registry import CLIENT_DIALECTS

Kind = Literal["completion", "count", "models", "health", "ready", "metrics", "hello"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route. `dialect` is that of an endpoint that takes calls."""

    kind: Kind
    name: str
    methods: tuple[str, ...] = ("GET", "HEAD")
    dialect: ClientDialectName | None = None


MODELS_PREFIX = "/v1/models/"

ENDPOINTS: Mapping[str, Endpoint] = {
    CLIENT_DIALECTS["openai_chat"].path: Endpoint("completion", "chat_completions", ("POST",), "openai_chat"),
    CLIENT_DIALECTS["anthropic_messages"].path: Endpoint("completion", "messages", ("POST",), "anthropic_messages"),
    **{
        row.counting.path: Endpoint("count", "count_tokens", ("POST",), name)
        for name, row in CLIENT_DIALECTS.items()
        if row.counting is not None
    },
    "/v1/models": Endpoint("models", "models"),
    "/healthz": Endpoint("health", "healthz"),
    "/readyz": Endpoint("ready", "readyz"),
    "/metrics": Endpoint("metrics", "metrics"),
    "/anthropic": Endpoint("hello", "hello"),
    "/anthropic/api/hello": Endpoint("hello", "hello"),
}

# Those that a caller who lost its way may have meant, for the 404.
SUPPORTED = ", ".join(
    f"{row.methods[0]} {path}" for path, row in ENDPOINTS.items() if row.kind in ("completion", "models")
)


def find(path: str) -> Endpoint | None:
    """The endpoint of *path*, which is as sent and without its query."""
    endpoint = ENDPOINTS.get(path)
    if endpoint is None and path.startswith(MODELS_PREFIX):
        return ENDPOINTS["/v1/models"]
    return endpoint
