"""What `gateway demo` serves: the built-in provider's models, and those of every vendor whose key is at hand."""

from __future__ import annotations

import ipaddress
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gateway.providers.presets import PRESETS

KEY = "anm-sk-demo"
BUILT_IN = {
    "demo-echo": "says what you said",
    "demo-story": "tells a short story, token by token",
    "demo-tools": "calls the first tool it is given",
    "demo-vision": "says what image it got",
    "demo-slow": "says its first word after 25 seconds",
    "demo-long": "writes and writes: cancel it",
    "demo-stall": "falls silent in the middle",
    "demo-broken": "breaks off in the middle",
    "demo-truncated": "ends without its terminator",
    "demo-busy": "is always overloaded",
    "demo-chat": "says what you said; its provider speaks OpenAI's dialect alone",
    "demo-messages": "says what you said; its provider speaks Anthropic's dialect alone",
}
_DIALECTS = ("openai", "anthropic")  # of the built-in provider, in fallback order
_ONLY: Mapping[str, tuple[str, ...]] = {"demo-chat": ("openai",), "demo-messages": ("anthropic",)}

# Models that come alive with a vendor's key: class, context window, longest answer, then USD per million tokens
# (input, cached input, output), from the vendors' public price lists of November 2026. Where they name no price of
# cached input it is that of input, where no longest answer, the window.
_Row = tuple[str, str, int, int, str, str, str]
_VENDOR_MODELS: Mapping[str, tuple[_Row, ...]] = {
    "openai": (
        ("gpt-4o", "mid", 128_000, 16_384, "2.50", "1.25", "10.00"),
        ("gpt-4o-mini", "budget", 128_000, 16_384, "0.15", "0.075", "0.60"),
        ("gpt-4.1", "mid", 1_047_576, 32_768, "2.00", "0.50", "8.00"),
        ("gpt-4.1-mini", "budget", 1_047_576, 32_768, "0.40", "0.10", "1.60"),
    ),
    "anthropic": (
        ("claude-sonnet-4-6", "premium", 200_000, 64_000, "3.00", "0.30", "15.00"),
        ("claude-haiku-4-5", "mid", 200_000, 64_000, "1.00", "0.10", "5.00"),
    ),
    "deepseek": (("deepseek-chat", "budget", 128_000, 8_192, "0.28", "0.028", "0.42"),),
    "groq": (("llama-3.3-70b-versatile", "budget", 131_072, 32_768, "0.59", "0.59", "0.79"),),
    "mistral": (("mistral-small-latest", "budget", 256_000, 256_000, "0.15", "0.015", "0.60"),),
    "xai": (("grok-4.6", "premium", 500_000, 500_000, "2.00", "0.50", "6.00"),),
    "moonshot": (("kimi-k2.6", "mid", 262_144, 262_144, "0.95", "0.16", "4.00"),),
    "cerebras": (("gpt-oss-120b", "budget", 131_072, 32_768, "0.35", "0.35", "0.75"),),
    "together": (("openai/gpt-oss-120b", "budget", 131_072, 131_072, "0.15", "0.15", "0.60"),),
    "fireworks": (("accounts/fireworks/models/gpt-oss-120b", "budget", 131_072, 131_072, "0.15", "0.15", "0.60"),),
}

_LOOPBACK = {4: "127.0.0.1", 6: "::1"}  # by version of the protocol
_EXPOSED = """
  Other machines reach it too: the key is no secret, and what it asks of real providers is on your bill."""


def document(provider_port: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of the demo, in the shape of a parsed gateway.toml."""
    origin = f"http://127.0.0.1:{provider_port}"
    providers: dict[str, Any] = {
        "demo-openai": {"preset": "openai_compatible", "base_url": f"{origin}/v1"},
        "demo-anthropic": {"preset": "anthropic_compatible", "base_url": origin},
    }
    models: dict[str, Any] = {name: _built_in(name) for name in BUILT_IN}
    for vendor in vendors(environ):
        variable = PRESETS[vendor].key_variable
        providers[vendor] = {"preset": vendor, "api_key": {"env": variable}}
        models |= {row[0]: _vendor_model(vendor, row) for row in _VENDOR_MODELS[vendor]}
    return {
        # A host of its own, so that a platform's PORT does not open it: everybody knows its key, which spends what the
        # vendors' keys are good for. Nobody routes to a demo, so nobody need be told that it leaves; and Ctrl-C should
        # not take long.
        "server": {"host": "127.0.0.1", "accept_s": 0, "drain_s": 1},
        "logging": {"format": "console"},
        "providers": providers,
        "models": models,
        "tiers": {"demo": {"rpm": 600, "inflight": 64}},
        "keys": {KEY: {"tenant": "demo", "tier": "demo"}},
    }


def vendors(environ: Mapping[str, str]) -> list[str]:
    """The vendors whose usual key variable is set."""
    return [name for name in _VENDOR_MODELS if environ.get(PRESETS[name].key_variable or "")]


def banner(environ: Mapping[str, str], host: str, port: int) -> str:
    """What a newcomer needs, ready to be pasted. *host* is the numeric address of the socket that listens."""
    address = ipaddress.ip_address(host)
    base = _url(_LOOPBACK[address.version] if address.is_unspecified else host, port)
    found = vendors(environ)
    real = ", ".join(found) if found else "none (set OPENAI_API_KEY, ANTHROPIC_API_KEY, ... and start again)"
    return f"""
  The gateway listens on {_url(host, port)}   key: {KEY}{"" if address.is_loopback else _EXPOSED}
  Built-in models: {", ".join(BUILT_IN)}
  Real providers:  {real}

  curl -sSN {base}/v1/chat/completions \\
    -H "Authorization: Bearer {KEY}" -H "Content-Type: application/json" \\
    -d '{{"model":"demo-story","messages":[{{"role":"user","content":"Tell me a story"}}],"stream":true}}'

  OpenAI SDK:     OpenAI(base_url="{base}/v1", api_key="{KEY}")
  Anthropic SDK:  Anthropic(base_url="{base}/anthropic", api_key="{KEY}")

  Ctrl-C stops it.
"""


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def provider_process() -> Iterator[int]:
    """
    The built-in provider as a process of its own; its port. It ends with the block, and with us should we be killed.

    Raises:
        RuntimeError: It did not come up.
    """
    command = [sys.executable, "-m", "gateway.demo_provider", "--port", "0"]
    # A session of its own, so that Ctrl-C reaches us alone and its streams live through our drain.
    process = subprocess.Popen(  # noqa: S603  # our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if len(words) != 2 or words[0] != b"listening":
            raise RuntimeError("the built-in provider did not start")
        yield int(words[1])
    finally:
        with process:  # closes the pipes: end of its standard input is its sign to leave
            process.terminate()


def _built_in(name: str) -> dict[str, Any]:
    routes = [{"provider": f"demo-{dialect}", "model": name} for dialect in _ONLY.get(name, _DIALECTS)]
    price = {"input": "3.00", "cached_input": "0.30", "output": "5.00"}
    return {
        "class": "mid",
        "context_window": 128_000,
        "input": ["text", "image"],
        "price": price,
        "routes": routes,
    }


def _vendor_model(vendor: str, row: _Row) -> dict[str, Any]:
    slug, model_class, window, longest, plain, cached, output = row
    return {
        "class": model_class,
        "context_window": window,
        "max_output_tokens": longest,
        "input": ["text", "image"] if vendor in ("openai", "anthropic") else ["text"],
        "price": {"input": plain, "cached_input": cached, "output": output},
        "routes": [{"provider": vendor, "model": slug}],
    }
