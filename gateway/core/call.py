"""What the client asked, as sent: bytes and a handful of parsed facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Raw

from gateway.core.catalog import DialectName


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The gateway's own request headers, read."""

    strip_extension: bool = False
    realtime: bool = False
    prefer_batch: bool = False
    no_cache: bool = False
    strict_params: bool = False
    session_id: str | None = None
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a completion.

    Attributes:
        dialect: The language of the endpoint it came in by.
        fields: Top-level members of the body, values untouched, in the client's order.
        slug: The model asked for, as the client spelled it.
        stream: Whether the answer is to be a stream.
        forward_headers: Allow-listed client headers that the provider should see (`anthropic-beta` and the like).
    """

    dialect: DialectName
    fields: Mapping[str, Raw]
    slug: str
    stream: bool
    options: CallOptions
    user: str | None = None
    forward_headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to a provider, ready to be sent. Built purely; `headers` hold the credential and are not for logs."""

    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"UpstreamRequest(url={self.url!r}, {len(self.body)} bytes)"
