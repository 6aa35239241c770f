"""What `gateway demo` serves: the built-in provider's models, and those of every vendor whose key is at hand."""

from __future__ import annotations

import hashlib
import ipaddress
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from gateway.core.accounts import Budget
from gateway.core.credentials import ENTROPY_BYTES, make_secret
from gateway.core.ports import Terms
from gateway.core.records import CLI, KeyDraft, NotThere, Taken
from gateway.providers.presets import PRESETS
from gateway.settings import account_at_hand, shipped_presets
from gateway.storage.accounts import SqlAccounts
from gateway.storage.database import Database

KEY = "anm-sk-demo"
DATABASE = "sqlite:///gateway-demo.db"
TENANT = "demo"


def _chance(name: str) -> bytes:
    """The same for everybody: what is in the README has to work, and the demo's keys are no secrets."""
    return hashlib.sha256(f"anoman demo {name}".encode()).digest()


TRIAL_KEY = make_secret("anm-sk", _chance("trial")[:ENTROPY_BYTES])
ADMIN_KEY = make_secret("anm-ak", _chance("admin")[:ENTROPY_BYTES])
# In the database, for trying out limits, budgets and traces: by what their secrets are made of.
SEEDS: Mapping[str, KeyDraft] = {
    "trial": KeyDraft(
        tenant=TENANT,
        name="trial",
        tier="trial",
        budgets=(Budget("key", "month", 2_000_000), Budget("session", "total", 1_000_000)),
    ),
    "admin": KeyDraft(tenant=TENANT, name="admin", rights=("manage",)),
}
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
    "demo-messages": "says what you said, or calls the tool it has to; its provider speaks Anthropic's dialect alone",
}
_DIALECTS = ("openai", "anthropic")  # of the built-in provider, in fallback order
_TEXT_ALONE = frozenset({"demo-story"})  # it is told nothing anyway; shows what becomes of an image there
_ONLY: Mapping[str, tuple[str, ...]] = {"demo-chat": ("openai",), "demo-messages": ("anthropic",)}

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
    providers |= _accounts(environ)
    return {
        # A host of its own, so that a platform's PORT does not open it: everybody knows its key, which spends what the
        # vendors' keys are good for. Nobody routes to a demo, so nobody need be told that it leaves; and Ctrl-C should
        # not take long.
        "server": {"host": "127.0.0.1", "accept_s": 0, "drain_s": 1},
        "logging": {"format": "console"},
        "catalogue": {"shipped": True},
        "providers": providers,
        "models": {name: _built_in(name) for name in BUILT_IN},
        "tiers": {
            "demo": {"rpm": 600, "inflight": 64},
            "trial": {"rpm": 4, "burst": {"capacity": 2, "refill_per_min": 1}, "inflight": 2, "tpm": 4000},
        },
        "keys": {KEY: {"tenant": TENANT, "tier": "demo"}},
    }


async def seed(database: Database, terms: Terms, now_ms: Callable[[], int]) -> None:
    """Make the demo's tenant and keys in *database*, as far as they are not there."""

    def accounts(chance: bytes) -> SqlAccounts:
        return SqlAccounts(database, lambda: terms, chance=lambda size: chance[:size], now_ms=now_ms)

    with suppress(Taken):
        await accounts(b"").create_tenant(CLI, TENANT, {"name": "Demo", "tier": "demo", "budgets": ()})
    for name, draft in SEEDS.items():
        chance = _chance(name)
        try:
            await accounts(chance).key(TENANT, f"key_{chance[:10].hex()}")
        except NotThere:
            await accounts(chance).create_key(CLI, draft)


def vendors(environ: Mapping[str, str]) -> list[str]:
    """The vendors of shipped models whose usual variables are set."""
    return [*_accounts(environ)]


def _accounts(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Their entries."""
    found = {name: account_at_hand(PRESETS[name], environ) for name in PRESETS if name in shipped_presets()}
    return {name: entry for name, entry in found.items() if entry is not None}


def banner(environ: Mapping[str, str], host: str, port: int) -> str:
    """What a newcomer needs, ready to be pasted. *host* is the numeric address of the socket that listens."""
    address = ipaddress.ip_address(host)
    base = _url(_LOOPBACK[address.version] if address.is_unspecified else host, port)
    found = vendors(environ)
    real = ", ".join(found) if found else "none (set OPENAI_API_KEY, ANTHROPIC_API_KEY, ... and start again)"
    return f"""
  The gateway listens on {_url(host, port)}   key: {KEY}{"" if address.is_loopback else _EXPOSED}
  With limits:     {TRIAL_KEY}
  For the admin:   {ADMIN_KEY}
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
        "max_output_tokens": 2048,  # as the provider has it: demo_provider.models; a test compares the two
        "input": ["text"] if name in _TEXT_ALONE else ["text", "image"],
        "price": price,
        "routes": routes,
    }
