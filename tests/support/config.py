"""A standard gateway.toml for tests: two fake providers, a few models and keys, and time limits cut short."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

CANARY = "zq7canary4x"
"""Part of every credential. No output of the gateway may hold it."""

KEY = f"anm-sk-{CANARY}-open"
"""No limit but 100,000 requests per minute."""
KEY_ONE = f"anm-sk-{CANARY}-one"
"""One request at once."""
KEY_FEW = f"anm-sk-{CANARY}-few"
"""Three requests per minute."""

OPENAI_SECRET = f"sk-{CANARY}-openai"
ANTHROPIC_SECRET = f"sk-ant-{CANARY}-anthropic"
GEMINI_SECRET = f"AIza{CANARY}-gemini"

WINDOW = 10_000_000
"""Tokens of context of every model: more than any body of a test fills."""

Config = dict[str, Any]

# Seconds. Long enough for two busy cores, short enough for a test; the pings stay out of the way of exact bytes.
_SCALED: Config = {
    "server": {
        "region": "id",
        "first_byte_s": 2,
        "header_s": 2,
        "body_s": 2,
        "keepalive_s": 5,
        "accept_s": 0.2,
        "drain_s": 3,
        "exit_s": 8,
    },
    "stream": {
        "first_token_s": 3,
        "idle_s": 1.5,
        "heartbeat_s": 10,
        "commit_after_s": 2,
        "write_stall_s": 1.5,
        "non_stream_s": 3,
        "usage_grace_s": 0.3,
    },
    "upstream": {
        "connect_s": 1,
        "retry_base_s": 0.01,
        "retry_wait_max_s": 0.5,
        "retry_budget_percent": 100,
        "breaker_failures": 100_000,  # out of the way; tests of the breaker lower it
    },
    "logging": {"format": "json"},
}


def model(*routes: str, price: tuple[str, str, str] = ("2.50", "1.25", "10.00"), **more: Any) -> Config:
    """A catalogue entry: *routes* as "provider/model" in fallback order, *price* as input, cached input, output."""
    plain, cached, output = price
    entry: Config = {"class": "mid", "context_window": WINDOW, "input": ["text", "image"], "tools": True}
    entry["price"] = {"input": plain, "cached_input": cached, "output": output}
    entry["routes"] = [dict(zip(("provider", "model"), route.split("/", 1), strict=True)) for route in routes]
    return entry | more


def openai_provider(base_url: str, **more: Any) -> Config:
    """An account at a fake that speaks the OpenAI dialect; *base_url* without a path."""
    return {"preset": "openai", "base_url": f"{base_url}/v1", "api_key": OPENAI_SECRET, **more}


def anthropic_provider(base_url: str, **more: Any) -> Config:
    """An account at a fake that speaks the Anthropic dialect; *base_url* without a path."""
    return {"preset": "anthropic", "base_url": base_url, "api_key": ANTHROPIC_SECRET, **more}


def gemini_provider(base_url: str, **more: Any) -> Config:
    """An account at a fake that speaks Gemini's own dialect; *base_url* without a path."""
    return {"preset": "gemini", "base_url": f"{base_url}/v1beta", "api_key": GEMINI_SECRET, **more}


def standard(base_url: str, **overrides: Config) -> Config:
    """
    The configuration most tests use; both providers are the fake at *base_url*.

    Models: "m" (fake-openai/m), "fallback" (fake-openai/first, then fake-openai/second),
    "claude" (fake-anthropic/claude),
    "claude-fallback" (fake-anthropic/first-claude, then fake-anthropic/second-claude);
    for the endpoint of the other dialect "chat-abroad" (fake-anthropic/chat-abroad)
    and "messages-abroad" (fake-openai/messages-abroad).

    Args:
        overrides: Sections to be merged in, table by table: `standard(url, stream={"idle_s": 0.2})`.
    """
    config = copy.deepcopy(_SCALED)
    config["providers"] = {"fake-openai": openai_provider(base_url), "fake-anthropic": anthropic_provider(base_url)}
    config["models"] = {
        "m": model("fake-openai/m"),
        "fallback": model("fake-openai/first", "fake-openai/second"),
        "claude": model("fake-anthropic/claude"),
        "claude-fallback": model("fake-anthropic/first-claude", "fake-anthropic/second-claude"),
        "chat-abroad": model("fake-anthropic/chat-abroad"),
        "messages-abroad": model("fake-openai/messages-abroad"),
    }
    config["tiers"] = {"one": {"inflight": 1}, "few": {"rpm": 3}}
    config["keys"] = {
        KEY: {"tenant": "open", "tier": "enterprise"},
        KEY_ONE: {"tenant": "one", "tier": "one"},
        KEY_FEW: {"tenant": "few", "tier": "few"},
    }
    return merged(config, overrides)


def merged(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> Config:
    """*config* with *overrides* put in, table by table; neither is changed."""
    out = dict(config)
    for name, value in overrides.items():
        old = out.get(name)
        out[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return out


def toml(config: Mapping[str, Any]) -> str:
    """*config* as TOML: two levels of tables, everything deeper inline."""
    lines: list[str] = []
    for section, table in config.items():
        scalars = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
        lines += [f"[{_key(section)}]", *(f"{_key(name)} = {_value(value)}" for name, value in scalars.items())]
        for name, entry in table.items():
            if isinstance(entry, Mapping):
                lines += [f"[{_key(section)}.{_key(name)}]"]
                lines += [f"{_key(key)} = {_value(value)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return json.dumps(name)  # a quoted key is always right, and JSON's escapes are all TOML's


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(name)} = {_value(inner)}" for name, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return json.dumps(value)
