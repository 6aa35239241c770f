"""How each program under test is started in front of the fake provider."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .client import ABROAD, API_KEY, MODELS
from .frames import UPSTREAM_MODEL
from .processes import Program, free_port

_BOOT_S = 20.0
_REPOSITORY = Path(__file__).resolve().parents[2]

_NGINX = """
worker_processes 1;
worker_rlimit_nofile 20000;
daemon off;
{user}
pid {home}/nginx.pid;
error_log {home}/nginx.err warn;
events {{ worker_connections 19000; multi_accept on; }}
http {{
    access_log off;
    client_body_temp_path {home}/body; proxy_temp_path {home}/proxy; fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi; scgi_temp_path {home}/scgi;
    client_max_body_size 24m;
    keepalive_requests 100000000;
    tcp_nodelay on;
    upstream provider {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 100000000; }}
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
        }}
    }}
}}
"""

_GATEWAY = """
[server]
host = "127.0.0.1"
port = {port}
region = "id"

[storage]
database_url = "sqlite:///{home}/bench.db"
redis_url = ""

[providers.openai]
preset = "openai"
base_url = "http://127.0.0.1:{upstream}/v1"
api_key = "sk-bench-upstream"
region = "US"

[providers.anthropic]
preset = "anthropic"
base_url = "http://127.0.0.1:{upstream}"
api_key = "sk-ant-bench-upstream"
region = "US"

[models."{openai}"]
class = "mid"
context_window = 128000
max_output_tokens = 16384
input = ["text"]
tools = true
price = {{ input = "2.50", cached_input = "1.25", output = "10.00" }}
routes = [ {{ provider = "openai", model = "{served}", weight = 1 }} ]

[models."{anthropic}"]
class = "mid"
context_window = 200000
max_output_tokens = 16384
input = ["text"]
tools = true
price = {{ input = "3.00", cached_input = "0.30", output = "15.00" }}
routes = [ {{ provider = "anthropic", model = "{served}", weight = 1 }} ]

[models."{openai_abroad}"]
class = "mid"
context_window = 200000
max_output_tokens = 16384
input = ["text"]
tools = true
price = {{ input = "3.00", cached_input = "0.30", output = "15.00" }}
routes = [ {{ provider = "anthropic", model = "{served}", weight = 1 }} ]

[models."{anthropic_abroad}"]
class = "mid"
context_window = 128000
max_output_tokens = 16384
input = ["text"]
tools = true
price = {{ input = "2.50", cached_input = "1.25", output = "10.00" }}
routes = [ {{ provider = "openai", model = "{served}", weight = 1 }} ]

[tiers.bench]
classes = ["budget", "mid", "premium", "ultra"]

[keys."{key}"]
tenant = "bench"
tier = "bench"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a program runs: its own directory, its port and the provider's."""

    home: Path
    port: int
    upstream: int

    @classmethod
    def make(cls, home: Path, upstream: int) -> Place:
        """A new directory and a free port."""
        home.mkdir(parents=True)
        return cls(home, free_port(), upstream)


def _nginx(place: Place) -> list[str]:
    user = "user root;" if os.geteuid() == 0 else ""  # else the worker could not enter the private directory
    config = place.home / "nginx.conf"
    config.write_text(_NGINX.format(home=place.home, port=place.port, upstream=place.upstream, user=user))
    return [_nginx_path() or "nginx", "-e", f"{place.home}/nginx.err", "-c", str(config)]


def _nginx_path() -> str | None:
    return shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def _aiohttp(place: Place) -> list[str]:
    script = Path(__file__).with_name("bare_proxy.py")
    return [sys.executable, str(script), str(place.port), str(place.upstream)]


def _gateway(place: Place) -> list[str]:
    config = place.home / "gateway.toml"
    names = {**MODELS, "served": UPSTREAM_MODEL, "key": API_KEY}
    names |= {f"{dialect}_abroad": model for dialect, model in ABROAD.items()}
    config.write_text(_GATEWAY.format(home=place.home, port=place.port, upstream=place.upstream, **names))
    return [sys.executable, "-m", "gateway", "serve", "--config", str(config)]


_COMMANDS: Mapping[str, Callable[[Place], list[str]]] = {"nginx": _nginx, "aiohttp": _aiohttp, "gateway": _gateway}
DIRECT = "direct"
NAMES = (DIRECT, *_COMMANDS)
BASE = "aiohttp"
OURS = "gateway"


def missing(name: str) -> str | None:
    """Why a candidate cannot run here, if so."""
    if name == "nginx" and _nginx_path() is None:
        return "nginx is not installed (Debian: nginx-light)"
    return None


@dataclass(frozen=True, slots=True)
class Running:
    """A target: the provider itself (no program) or a program in front of it."""

    name: str
    port: int
    program: Program | None

    def cpu_s(self) -> float:
        """CPU seconds so far; none for direct."""
        return self.program.cpu_s() if self.program else 0.0

    def waited_s(self) -> float:
        """Seconds spent waiting for the core so far; none for direct."""
        return self.program.waited_s() if self.program else 0.0

    def stop(self) -> None:
        """End the program, if there is one."""
        if self.program:
            self.program.stop()


class NotStarted(Exception):
    """A candidate did not come up; the text says what it printed."""


async def start(name: str, upstream: int, core: int, home: Path) -> Running:
    """Start candidate *name* pinned to *core*. Raises NotStarted."""
    if name == DIRECT:
        return Running(name, upstream, None)
    place = Place.make(home, upstream)
    program = Program(_COMMANDS[name](place), core=core, env=_environment(), log=home / "log")
    if not await program.listening(place.port, _BOOT_S):
        program.stop()
        raise NotStarted(f"{name} did not start:\n{program.last_words()}")
    program.refresh()
    return Running(name, place.port, program)


def _environment() -> dict[str, str]:
    """Ours without what would configure the gateway, with the repository importable."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GATEWAY_") and name not in {"PORT", "DATABASE_URL", "REDIS_URL", "WEB_CONCURRENCY"}
    }
    return kept | {"PYTHONPATH": str(_REPOSITORY)}
