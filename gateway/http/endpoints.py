"""The routes, as a table: exact paths, so that nobody can read another path out of one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gateway.core.catalog import ClientDialectName
from gateway.core.exchange import Source
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.http.admin.routes import PREFIX

Kind = Literal["completion", "count", "playground", "panel", "models", "health", "ready", "metrics", "hello", "admin"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route. `dialect` is that of an endpoint that takes calls, `source` what of ours those are made by."""

    kind: Kind
    name: str
    methods: tuple[str, ...] = ("GET", "HEAD")
    dialect: ClientDialectName | None = None
    source: Source | None = None


MODELS_PREFIX = "/v1/models/"
PLAYGROUND = "/anoman/v1/playground/run"
PANEL = f"{PLAYGROUND}/{{run_id}}/panels/{{id}}"
_PANEL = re.compile(rf"{re.escape(PLAYGROUND)}/[^/]+/panels/[^/]+")

ENDPOINTS: Mapping[str, Endpoint] = {
    CLIENT_DIALECTS["openai_chat"].path: Endpoint("completion", "chat_completions", ("POST",), "openai_chat"),
    CLIENT_DIALECTS["anthropic_messages"].path: Endpoint("completion", "messages", ("POST",), "anthropic_messages"),
    **{
        row.counting.path: Endpoint("count", "count_tokens", ("POST",), name)
        for name, row in CLIENT_DIALECTS.items()
        if row.counting is not None
    },
    PLAYGROUND: Endpoint("playground", "playground", ("POST",), "openai_chat", "playground"),
    PANEL: Endpoint("panel", "panel", ("DELETE",)),
    "/v1/models": Endpoint("models", "models"),
    "/healthz": Endpoint("health", "healthz"),
    "/readyz": Endpoint("ready", "readyz"),
    "/metrics": Endpoint("metrics", "metrics"),
    "/anthropic": Endpoint("hello", "hello"),
    "/anthropic/api/hello": Endpoint("hello", "hello"),
}

ADMIN = Endpoint("admin", "admin", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))  # a table of its own knows more

# Those that a caller who lost its way may have meant, for the 404.
_OFFERED: frozenset[Kind] = frozenset({"completion", "count", "playground", "models"})
SUPPORTED = ", ".join(f"{row.methods[0]} {path}" for path, row in ENDPOINTS.items() if row.kind in _OFFERED)


def find(path: str) -> Endpoint | None:
    """The endpoint of *path*, which is as sent and without its query."""
    endpoint = ENDPOINTS.get(path)
    if endpoint is None and path.startswith(MODELS_PREFIX):
        return ENDPOINTS["/v1/models"]
    if endpoint is None and _PANEL.fullmatch(path):
        return ENDPOINTS[PANEL]
    if endpoint is None and path.startswith(PREFIX):
        return ADMIN
    return endpoint
