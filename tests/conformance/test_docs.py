"""Every command, program, configuration and answer in README.md and docs/*.md is tried."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import AsyncIterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import Counter

from gateway.__main__ import main
from gateway.demo import ADMIN_KEY, BUILT_IN, KEY, TRIAL_KEY, document
from gateway.demo_provider.models import MAX_OUTPUT_TOKENS
from gateway.metrics import MetricsRecorder
from tests.conformance.blocks import Block, blocks, masked
from tests.conformance.demo import DEMO, ROOT, Run, Served, serving
from tests.contract.test_two_tenants import routes
from tests.support.client import Client, Reply
from tests.support.frames import chat, messages
from tests.support.gateway import CHAT, MESSAGES
from tests.support.panels import RUN, run_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("conformance-docs")]

GENERATED = ("errors.md", "events.md", "settings.md")  # by `python -m gateway.reference`, which has tests of its own
FILES = [
    ROOT / "README.md",
    ROOT / "docs" / "examples" / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED),
]
BLOCKS = [block for path in FILES for block in blocks(path)]
# Silence and its end come soon: the document says so where it shows them.
QUICK = {"GATEWAY_STREAM_HEARTBEAT_S": "0.4", "GATEWAY_STREAM_IDLE_S": "2"}
VENDOR_KEYS = {"OPENAI_API_KEY": "sk-of-nobody", "DEEPSEEK_API_KEY": "sk-of-nobody", "GEMINI_API_KEY": "of-nobody"}
AWS_KEYS = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_BEARER_TOKEN_BEDROCK"), "of-nobody")
ENDPOINTS = {"chat": (CHAT, chat), "messages": (MESSAGES, messages)}
LINK = re.compile(r"\]\(([^)#:]+)\)")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def demo() -> AsyncIterator[Served]:
    async with serving(DEMO, env=QUICK) as served:
        yield served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader would be: the documents' configurations by their names, and the environment of `make run`."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / ".venv").symlink_to(sys.prefix)  # as a whole: an interpreter looks for its packages beside itself
    (folder / "deploy").symlink_to(ROOT / "deploy")
    for block in BLOCKS:
        if block.language == "toml":
            (folder / block.how).write_text(block.text)
    return folder


def of(*kinds: tuple[str, str]) -> pytest.MarkDecorator:
    """The blocks whose language and first word of how are one of *kinds*; "*" stands for any word."""
    chosen = [
        block
        for block in BLOCKS
        if any(block.language == language and how in ("*", block.how.split(" ")[0]) for language, how in kinds)
    ]
    return pytest.mark.parametrize("block", chosen, ids=str)


def assert_ran(block: Block, run: Run) -> None:
    assert (run.code, run.errors) == (0, "")
    if block.output is not None:
        assert run.out.rstrip("\n") == block.output.rstrip("\n")


async def test_every_block_is_tried() -> None:
    """No block is without a word that says how to try it."""
    known = re.compile(
        r"(bash (demo|make|check|serve|heroku|keys|admin|books)|python demo|js demo|toml \S+|sse (chat|messages) .+"
        r"|json (chat|messages|GET) .+|(sse|json) run .+)"
    )

    assert [str(block) for block in BLOCKS if not known.fullmatch(f"{block.language} {block.how}")] == []


async def test_links() -> None:
    """Every relative link leads somewhere."""
    dead = [
        f"{path.name}: {target}"
        for path in FILES
        for target in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / target).exists()
    ]

    assert dead == []


@of(("python", "demo"))
async def test_python(demo: Served, block: Block) -> None:
    """It ends well and prints what the document says."""
    assert_ran(block, await demo.python(block.text))


@of(("js", "demo"))
async def test_js(demo: Served, block: Block) -> None:
    """It ends well and prints what the document says."""
    assert_ran(block, await demo.node(block.text))


@of(("bash", "demo"))
async def test_shell(demo: Served, block: Block) -> None:
    """It ends well and gets an answer that is no error."""
    run = await demo.shell(block.text)

    assert (run.code, run.errors) == (0, "")
    assert ('"object":"list"' if "/anoman/v1/traces" in block.text else '"_anoman"') in run.out
    assert '"error"' not in run.out


@of(("bash", "make"))
async def test_make(block: Block) -> None:
    """The target exists and knows the options; `make run` starts the demo that the other blocks are tried with."""
    *environ, make, target = [word for word in shlex.split(block.text) if not word.startswith("ARGS=")]
    options = re.findall(r"--\w+", block.text)
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)

    assert make == "make"
    assert all("=" in assignment for assignment in environ)
    assert recipe is not None
    assert ("-m gateway demo $(ARGS)" if target == "run" else "-m pytest") in recipe[1]
    assert set(options) <= {option for parameter in main.commands["demo"].params for option in parameter.opts}


@of(("toml", "*"), ("bash", "check"))
async def test_configuration(folder: Path, block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration is accepted, and the command says what the document says."""
    for name, key in (VENDOR_KEYS | AWS_KEYS).items():
        monkeypatch.setenv(name, key)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/usr/sbin")  # Debian's place of nginx; not in every user's path
    monkeypatch.delenv("GATEWAY_CONFIG", raising=False)
    command = block.text if block.language == "bash" else f".venv/bin/python -m gateway check --config {block.how}"

    assert_ran(block, await Served(0).run(["sh", "-e", "-c", command], cwd=folder))


@of(("bash", "serve"))
async def test_serve(folder: Path, block: Block) -> None:
    """The command serves the models of the configuration."""
    models = tomllib.loads((folder / "gateway.toml").read_text())["models"]

    async with serving(shlex.split(block.text), cwd=folder, env=VENDOR_KEYS) as served:
        headers = {"x-api-key": "anm-sk-change-me"}
        reply = await Client(served.port).request("GET", "/v1/models", headers=headers)

    assert [entry["id"] for entry in reply.json["data"]] == list(models)


async def _reader(folder: Path) -> Served:
    """One who stands in *folder*, without a configuration."""
    (folder / ".venv").symlink_to(sys.prefix)
    return Served(0)


@pytest.mark.timeout(300)  # eight starts, of seconds each on a busy machine
async def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands about accounts work as they stand, one after the other, from an empty folder on."""
    for name in ("GATEWAY_CONFIG", "DATABASE_URL", "GATEWAY_STORAGE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    reader = await _reader(tmp_path)
    runs = []
    for block in BLOCKS:
        if (block.language, block.how) == ("bash", "keys"):
            runs.append(await reader.run(["sh", "-e", "-c", block.text], cwd=tmp_path))
            if "keys create" in block.text:
                listed = await reader.run([".venv/bin/python", "-m", "gateway", "keys", "list", "--json"], cwd=tmp_path)
                monkeypatch.setenv("KEY_ID", json.loads(listed.out.splitlines()[0])["id"])

    assert [(run.code, "Traceback" in run.errors) for run in runs] == [(0, False)] * len(runs)
    assert re.fullmatch(r"Created the tenant acme, [^\n]*\nanm-sk-\w{49}\n", runs[0].out)
    assert "anm-sk-..." in runs[1].out


async def test_admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requests to the admin API work as they stand, one after the other, and none is refused."""
    for name in ("GATEWAY_CONFIG", "DATABASE_URL", "GATEWAY_STORAGE_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    reader = await _reader(tmp_path)
    for words in ("tenants create house", "keys create --tenant house --admin operate"):
        made = await reader.run([".venv/bin/python", "-m", "gateway", *words.split()], cwd=tmp_path)
    monkeypatch.setenv("OPERATOR_KEY", made.out.strip())
    async with serving([sys.executable, "-m", "gateway", "serve"], cwd=tmp_path) as served:
        runs = [await served.shell(block.text) for block in BLOCKS if (block.language, block.how) == ("bash", "admin")]

    assert [(run.code, run.errors) for run in runs] == [(0, "")] * len(runs)
    assert '"secret":"anm-sk-' in runs[0].out
    assert runs[1].out.count('"action":"key.created"') == 3  # and the operator's own


async def test_routes_of_the_admin_api() -> None:
    """The document of the admin API has every route with its right, and no other."""
    text = (ROOT / "docs" / "admin.md").read_text()
    listed = re.findall(r"^\| `(\w+) (/anoman/v1/\S+)` \| `(\w+)`", text, re.MULTILINE)

    assert sorted(listed) == sorted((route.method, route.template, route.right) for route in routes())


@of(("bash", "heroku"))
async def test_heroku(block: Block) -> None:
    """The commands set only variables that app.json explains, and name its buildpack."""
    app = json.loads((ROOT / "deploy" / "app.json").read_text())
    commands = [shlex.split(line) for line in block.text.splitlines()]

    named = {word.partition("=")[0] for words in commands if words[1] == "config:set" for word in words[2:]}

    assert {words[0] for words in commands} == {"heroku", "git"}
    assert "GATEWAY_CONFIG" in named
    assert named <= set(app["env"])
    assert f"--buildpack {app['buildpacks'][0]['url']}\n" in block.text


@of(("sse", "chat"), ("sse", "messages"))
async def test_wire_format(demo: Served, block: Block) -> None:
    """The gateway writes just that, but for ids and times; after "..." only the end is shown."""
    path, model, prompt = block.how.split(" ", 2)
    target, make = ENDPOINTS[path]

    reply = await Client(demo.port, {"x-api-key": KEY}).request("POST", target, make(model, prompt))

    shown, sent = masked(block.text), masked(reply.body.decode())
    if shown.startswith("...\n\n"):
        shown = shown.removeprefix("...\n\n")
        sent = sent[-len(shown) :]
    assert sent == shown


@of(("sse", "run"))
async def test_frames_of_panels(demo: Served, block: Block) -> None:
    """The gateway writes just that for each panel, but for ids and times, and the terminator at the end."""
    reply = await run_panels(demo, block, is_stream=True)

    shown, sent = (masked(text).split("\n\n") for text in (block.text, reply.body.decode()))
    assert sent[-2:] == shown[-2:] == ["data: [DONE]", ""]
    assert _by_panel(sent[:-2]) == _by_panel(shown[:-2])


def _by_panel(frames: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for frame in frames:
        found.setdefault(frame.rpartition('"panel":')[2], []).append(frame)
    return found


async def run_panels(demo: Served, block: Block, *, is_stream: bool) -> Reply:
    """The answer to a run of the models that *block* names."""
    _, models, prompt = block.how.split(" ", 2)
    body = run_of(*models.split(","), text=prompt, stream=is_stream)
    return await Client(demo.port, {"x-api-key": KEY}).request("POST", RUN, body)


@of(("json", "run"))
async def test_json_of_panels(demo: Served, block: Block) -> None:
    """The gateway answers just that, but for ids and times."""
    reply = await run_panels(demo, block, is_stream=False)

    assert _masked_json(reply.json) == _masked_json(json.loads(block.text))


@of(("json", "chat"), ("json", "messages"), ("json", "GET"))
async def test_json(demo: Served, block: Block) -> None:
    """The gateway answers just that, but for ids and times."""
    client = Client(demo.port, {"x-api-key": KEY})
    kind, _, rest = block.how.partition(" ")
    if kind == "GET":
        reply = await client.request("GET", rest)
    else:
        target, make = ENDPOINTS[kind]
        model, _, prompt = rest.partition(" ")
        reply = await client.request("POST", target, make(model, prompt, stream=False))

    assert _masked_json(reply.json) == _masked_json(json.loads(block.text))


def _masked_json(value: Any) -> Any:
    return json.loads(masked(json.dumps(value, separators=(",", ":"))))


async def test_models_of_the_demo() -> None:
    """The table of the first page is the demo's own."""
    rows = re.findall(r"^\| `(demo-[a-z]+)` \| (.+) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)

    assert dict(rows) == BUILT_IN
    assert {model["max_output_tokens"] for model in document(1, {})["models"].values()} == {MAX_OUTPUT_TOKENS}


async def test_limits_of_the_demo() -> None:
    """The limits that the first page tells of are those of the demo's key."""
    tier = document(1, {})["tiers"]["demo"]

    text = (ROOT / "README.md").read_text()
    said = re.search(r"`anm-sk-demo` may ask (\d+) times\s+a minute and (\d+) at once", text)

    assert said is not None
    assert {"rpm": int(said[1]), "inflight": int(said[2])} == tier


async def test_keys_of_the_demo() -> None:
    """The keys of the first page's samples are those that the demo makes, the same for everybody."""
    text = (ROOT / "README.md").read_text()

    assert set(re.findall(r"anm-[as]k-\w{30,}", text)) == {TRIAL_KEY, ADMIN_KEY}


async def test_trying_out_limits(tmp_path: Path) -> None:
    """What the first page says of the trial key holds: its rate with its burst, its budgets, and what it has left."""
    call = {"model": "demo-echo", "max_tokens": 100, "messages": [{"role": "user", "content": "Halo"}]}
    async with serving(DEMO, cwd=tmp_path) as demo:
        client = Client(demo.port, [("authorization", f"Bearer {TRIAL_KEY}"), ("anoman-session-id", "s1")])
        replies = [await client.request("POST", "/v1/chat/completions", call) for _ in range(7)]
    async with serving(DEMO, cwd=tmp_path) as demo:  # once more, on what is there
        client = Client(demo.port, [("authorization", f"Bearer {TRIAL_KEY}"), ("anoman-session-id", "s1")])
        again = await client.request("POST", "/v1/chat/completions", call)
        long = await client.request("POST", "/v1/chat/completions", call | {"max_tokens": 1000})
        silent = await client.request("POST", "/v1/chat/completions", {**call, "max_tokens": None})
        limits = (await client.request("GET", "/anoman/v1/usage/limits")).json["data"]
    (anew,) = re.findall(r"`(rm [^`]*)`", (ROOT / "README.md").read_text())
    shell = await asyncio.create_subprocess_shell(anew, cwd=tmp_path)
    ended = await shell.wait()
    async with serving(DEMO, cwd=tmp_path) as demo:
        client = Client(demo.port, [("authorization", f"Bearer {ADMIN_KEY}")])
        usage = await client.request("GET", "/anoman/v1/usage")

    assert {one["limit"]: one["max"] for one in limits if "usd" not in one["limit"]} == {
        "requests_per_minute": 4, "burst_credits": 2, "tokens_per_minute": 4000, "requests_at_once": 2,
    }  # fmt: skip
    assert (ended, usage.json["total"]["requests"]) == (0, 0)
    assert [reply.status for reply in replies] == [200] * 6 + [429]
    assert [reply.headers.get("x-anoman-burst-active") for reply in replies[:6]] == [None] * 4 + ["true"] * 2
    assert again.status == 200
    assert (long.status, long.json["error"]["code"]) == (402, "budget_exceeded")
    assert "and 2048 of answer" in silent.json["error"]["message"]


async def test_metrics() -> None:
    """The table of metrics has every one, with its type and labels, and no other."""
    recorder = MetricsRecorder()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", recorder.render().decode(), re.MULTILINE))
    counters = [metric for metric in vars(recorder).values() if isinstance(metric, Counter)]
    labels = {f"{counter._name}_total": list(counter._labelnames) for counter in counters}

    rows = re.findall(
        r"^\| `(gateway_\w+)` \| (\w+) \| ([^|]*)\|", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE
    )

    assert {name: kind for name, kind, _ in rows} == types
    assert {name: re.findall(r"\w+", said) for name, kind, said in rows if kind == "counter"} == labels


async def test_clients_are_installed_by_the_tests() -> None:
    """What the documents tell readers to install is what the tests ran with."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    python = set(re.findall(r"^[\w-]+", setup["options.extras_require"]["test"], re.MULTILINE))
    node = json.loads((ROOT / "tests" / "conformance" / "node" / "package.json").read_text())["dependencies"]
    text = "".join(path.read_text() for path in FILES)

    assert set(_installed(text, "pip install")) <= python
    assert set(_installed(text, "npm install")) <= set(node)


def _installed(text: str, command: str) -> list[str]:
    names = [name for found in re.findall(rf"`{command} ([^`]+)`", text) for name in found.split()]
    assert names
    return names
