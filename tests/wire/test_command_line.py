"""The commands as a user types them, and the reload of a running gateway."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.demo import banner
from gateway.providers.presets import PRESETS
from gateway.settings import load, warnings_text
from tests.support.acts import wait
from tests.support.client import Client
from tests.support.config import KEY, model, standard, toml
from tests.support.frames import chat, parsed, text_of
from tests.support.gateway import Gateway, free_port
from tests.support.notation import DONE, EOF_OK, FIN, R, T, U
from tests.support.provider import FakeProvider

ROOT = Path(__file__).resolve().parents[2]
DEMO_KEY = "anm-sk-demo"
QUIET = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}


def run(*arguments: str, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """`python -m gateway` with *arguments*, to its end."""
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=QUIET | environ, timeout=30, check=False
    )


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with FakeProvider() as fake:
        fake.script("m", [R(), T("Hello"), FIN(), U(7, 1), DONE, EOF_OK])
        yield fake


def test_check_says_everything_at_once(tmp_path: Path) -> None:
    """`check` prints every problem of a file and exits 1."""
    path = tmp_path / "gateway.toml"
    path.write_text('[server]\nport = "x"\n[stream]\nidle = 3\n')

    done = run("check", "--config", str(path))

    assert done.returncode == 1
    assert "server.port" in done.stderr
    assert "stream.idle" in done.stderr


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000], ids=["an endless number", "deep nesting"])
def test_check_of_what_the_parser_chokes_on(value: str, tmp_path: Path) -> None:
    """A file on which the TOML parser itself gives up ends in one sentence, not in a traceback."""
    path = tmp_path / "gateway.toml"
    path.write_text(f"x = {value}")

    done = run("check", "--config", str(path))

    assert done.returncode == 1
    assert done.stdout == ""
    title, problem = done.stderr.split("\n", 1)
    assert title == "1 problem in the configuration:"
    assert problem.strip().startswith(f"{path}: ")
    assert "\n" not in problem.strip()


def test_check_of_a_good_file() -> None:
    """`check` of the example file exits 0."""
    environ = {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-ant-x", "DEEPSEEK_API_KEY": "sk-d"}

    done = run("check", "--config", "docs/examples/gateway.toml", **environ)

    assert done.stderr == ""
    assert done.returncode == 0


def test_check_of_nothing_warns(tmp_path: Path) -> None:
    """`check` names the file, and says on standard error that nobody would be served; it exits 0 all the same."""
    path = tmp_path / "gateway.toml"
    path.write_text("")

    done = run("check", "--config", str(path))

    assert done.returncode == 0
    assert done.stdout == f"{path}: fine, 0 models, 0 keys\n"
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == [
        "warning: no models are configured",
        "warning: no keys are configured",
    ]


def test_models_of_nothing_warns(tmp_path: Path) -> None:
    """`models` without a file lists nothing, and says as `check` does that nobody would be served; it exits 0."""
    done = run("models", cwd=tmp_path, PYTHONPATH=str(ROOT), GATEWAY_CONFIG="")

    assert (done.returncode, done.stdout) == (0, "")
    assert [line.split(",")[0] for line in done.stderr.splitlines()] == [
        "warning: no models are configured",
        "warning: no keys are configured",
    ]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_serve_of_nothing_warns(tmp_path: Path, workers: str) -> None:
    """`serve` without a file starts, and says once, in the words of `check`, that nobody would be served."""
    environ = QUIET | {"PYTHONPATH": str(ROOT), "GATEWAY_CONFIG": "", "GATEWAY_SERVER_ACCEPT_S": "0"}
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", "--workers", workers]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("server.started" in line for line in iter(process.stdout.readline, ""))

        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)

    assert process.returncode == 0
    assert errors == warnings_text(load(None, {}, {}, presets=PRESETS))


def test_settings_masks_secrets(tmp_path: Path) -> None:
    """`settings` prints what is in force and no secret."""
    path = tmp_path / "gateway.toml"
    path.write_text(toml(standard("http://127.0.0.1:9")))

    done = run("settings", "--config", str(path), GATEWAY_STREAM_IDLE_S="12")

    assert done.returncode == 0
    assert re.search(r"stream\.idle_s\s+.*12", done.stdout)
    assert KEY not in done.stdout


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    """A port that is in use ends in a sentence, not in a traceback."""
    path = tmp_path / "gateway.toml"
    path.write_text(toml(standard("http://127.0.0.1:9")))
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket,time;s=socket.create_server(('127.0.0.1',0));print(s.getsockname()[1],flush=True);input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()

        done = run("serve", "--config", str(path), "--port", port)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert port in done.stderr


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_room_for_the_journal_is_one_clear_line(tmp_path: Path, workers: str) -> None:
    """A disk that has no room for what each process begins its journal with: one line and exit code 1."""
    (tmp_path / "gateway.toml").write_text(toml(standard("http://127.0.0.1:9")))
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**19,) * 2); "
    limit += "os.execv(sys.argv[1], sys.argv[1:])"
    serve = ("-m", "gateway", "serve", "--port", str(free_port()), "--workers", workers)

    done = subprocess.run(
        [sys.executable, "-c", limit, sys.executable, *serve],
        cwd=tmp_path, env=QUIET | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.endswith(
        "Cannot write to gateway.db-spool: File too large. Choose another [ledger] directory.\n"
    )
    assert "Traceback" not in done.stderr


def test_every_command_is_documented() -> None:
    """The README's table of commands has each of them, and no other."""
    from gateway.__main__ import main

    text = (ROOT / "README.md").read_text()

    _, _, rest = text.partition("| command | |\n|---|---|\n")
    named = re.findall(r"^\| `(\w+)` \|", rest.partition("\n\n")[0], re.MULTILINE)

    assert sorted(named) == sorted(main.commands)


async def test_reload(provider: FakeProvider) -> None:
    """SIGHUP reads the file again: a new model serves, a removed key is refused, open streams go on.

    What was fixed at the start and is written otherwise now is named; what took effect is not.
    """
    config = standard(provider.base_url)
    go_on = asyncio.Event()
    provider.script("slow", [R(), T("a"), wait(go_on), T("b"), FIN(), U(7, 2), DONE, EOF_OK])
    config["models"]["slow"] = model("fake-openai/slow")
    async with Gateway(config) as gateway:
        path = Path(gateway._home.name) / "gateway.toml"
        client = gateway.client()
        async with client.stream("/v1/chat/completions", chat("slow")) as stream:
            fresh = standard(provider.base_url)
            fresh["server"] |= {"region": "sg", "drain_s": 2, "header_s": 1.5}
            fresh["upstream"] |= {"retry_base_s": 0.02, "max_connections": 7}
            fresh["storage"] = {**fresh.get("storage", {}), "redis_url": "redis://127.0.0.1:1/"}
            fresh["limits"] = {**fresh.get("limits", {}), "lease_s": 31, "stop_margin_tokens": 10}
            fresh["models"]["new"] = model("fake-openai/m")
            new_key = f"{KEY}-new"
            fresh["keys"] = {new_key: {"tenant": "open", "tier": "enterprise"}}
            path.write_text(toml(fresh))
            gateway.signal(signal.SIGHUP)
            (line,) = await gateway.logged("settings.reloaded")

            served = await gateway.client(new_key).request("POST", "/v1/chat/completions", chat("new", stream=True))
            refused = await client.request("POST", "/v1/chat/completions", chat("m"))
            go_on.set()
            frames = await stream.all_frames()

    fixed = ["server.header_s", "upstream.max_connections", "storage.redis_url", "limits.lease_s"]
    assert line["restart_needed_for"] == fixed
    assert (served.status, served.headers.get("x-anoman-region")) == (200, "SG")
    assert refused.status == 401
    assert text_of(frames) == "ab"
    assert parsed(frames)[-1] == "[DONE]"


async def test_reload_of_a_bad_file_changes_nothing(provider: FakeProvider) -> None:
    """A file that is wrong leaves everything as it was, and the log says what is wrong."""
    async with Gateway(standard(provider.base_url)) as gateway:
        (Path(gateway._home.name) / "gateway.toml").write_text("[server]\nregion = true\n")
        gateway.signal(signal.SIGHUP)
        (line,) = await gateway.logged("settings.refused")

        reply = await gateway.client().request("POST", "/v1/chat/completions", chat("m"))

    assert any("server.region" in problem for problem in line["problems"])
    assert reply.status == 200


@pytest.mark.parametrize("workers", [1, 2])
async def test_reload_of_an_empty_file_changes_nothing(provider: FakeProvider, workers: int) -> None:
    """A file without models or keys, as one that is just being written, does not take them away from who serves."""
    async with Gateway(standard(provider.base_url), workers=workers) as gateway:
        (Path(gateway._home.name) / "gateway.toml").write_text("")
        gateway.signal(signal.SIGHUP)
        refused = await gateway.logged("settings.refused", workers)

        reply = await gateway.client().request("POST", "/v1/chat/completions", chat("m"))

    assert [len(line["problems"]) for line in refused] == [2] * workers
    assert reply.status == 200


async def demo(folder: Path, *options: str, **environ: str) -> tuple[asyncio.subprocess.Process, str]:
    """`gateway demo` once it serves, and what it has printed until then; it keeps what it keeps in *folder*."""
    command = [sys.executable, "-m", "gateway", "demo", *options]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=QUIET | {"PYTHONPATH": str(ROOT)} | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    text = ""
    async with asyncio.timeout(30):
        while "server.started" not in text:
            line = await process.stdout.readline()
            assert line, text
            text += line.decode()
    return process, text


async def test_demo_streams_and_leaves_on_ctrl_c(tmp_path: Path) -> None:
    """`gateway demo` prints a key and a curl line, streams both dialects, and exits 0 on SIGINT with its provider."""
    port = free_port()
    process, text = await demo(tmp_path, "--port", str(port))
    client = Client(port, [("authorization", f"Bearer {DEMO_KEY}")])

    models = (await client.request("GET", "/v1/models")).json["data"]
    async with client.stream("/v1/chat/completions", chat("demo-echo", "Halo dunia")) as stream:
        frames = await stream.all_frames()
    process.send_signal(signal.SIGINT)
    rest, errors = await asyncio.wait_for(process.communicate(), 20)

    assert DEMO_KEY in text
    assert f"curl -sSN http://127.0.0.1:{port}/v1/chat/completions" in text
    assert {"demo-echo", "demo-story", "demo-broken"} <= {entry["id"] for entry in models}
    assert "Halo dunia" in text_of(frames)
    assert process.returncode == 0
    assert errors == b""
    assert b"server.stopped" in rest


@pytest.mark.parametrize(
    ("options", "environ", "host", "others"),
    [
        ([], {}, "127.0.0.1", False),
        (["--host", "127.0.0.2"], {}, "127.0.0.2", False),
        ([], {"GATEWAY_SERVER_HOST": "0.0.0.0"}, "0.0.0.0", True),
    ],
    ids=["by default", "option", "variable"],
)
async def test_demo_stays_on_loopback(
    options: list[str], environ: dict[str, str], host: str, others: bool, tmp_path: Path
) -> None:
    """A platform's PORT gives the demo its port and no other address; one that is asked for is told as it is."""
    port = free_port()

    process, text = await demo(tmp_path, *options, PORT=str(port), **environ)
    try:
        reached = not await asyncio.to_thread(socket_error, "127.0.0.3", port)
    finally:
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 20)

    assert f"listens on http://{host}:{port} " in text
    assert reached == ("Other machines" in text) == others


def socket_error(host: str, port: int) -> int:
    """What connecting fails with, 0 for nothing."""
    with socket.socket() as sock:
        return sock.connect_ex((host, port))


async def test_demo_tells_the_port_it_got(tmp_path: Path) -> None:
    """Where the system chooses the port, the banner has the one it chose."""
    process, text = await demo(tmp_path, "--port", "0")
    found = re.search(r"curl -sSN http://127\.0\.0\.1:(\d+)/", text)
    assert found is not None

    reply = await Client(int(found[1])).request("GET", "/readyz")
    process.send_signal(signal.SIGINT)
    await asyncio.wait_for(process.communicate(), 20)

    assert reply.status == 200


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("192.0.2.7", "http://192.0.2.7:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("::", "http://[::1]:80"),
    ],
)
def test_demo_samples_can_be_pasted(host: str, base: str) -> None:
    """The banner's samples have an address that can be connected to, wherever the demo listens."""
    text = banner({}, host, 80)

    assert re.findall(r"https?://[^/\s\"]+", text)[1:] == [base] * 3


@pytest.mark.parametrize("moment", ["selectors", "click", "msgspec", "aiohttp", "gateway.app", "gateway.demo"])
def test_ctrl_c_while_it_starts(moment: str) -> None:
    """Ctrl-C before anything is served ends the command at once, with the shell's status for it and without a word."""
    command = [sys.executable, "-X", "importtime", "-m", "gateway", "demo", "--port", str(free_port())]
    with subprocess.Popen(
        command, cwd=ROOT, env=QUIET, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        imported = iter(process.stderr.readline, "")
        assert any(line.rpartition("|")[2].strip() == moment for line in imported)

        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=20)

    assert process.returncode == 130
    assert out == ""
    assert [line for line in errors.splitlines() if not line.startswith("import time:")] == []


def test_integers_are_bounded() -> None:
    """Integers of more digits than anybody needs are not read at all: their time grows with the square."""
    program = (
        "import sys, gateway.__main__ as m; m.main(['keys'], standalone_mode=False); print(len(str(int('9' * 641))))"
    )

    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert 'tenant = "my-team"' in done.stdout
    assert done.stderr.rstrip().rpartition("\n")[2].startswith("ValueError: Exceeds the limit (640 digits)")


def test_demo_knows_the_vendors_whose_keys_are_set() -> None:
    """A vendor's models are there exactly when its usual key variable is set."""
    from gateway.demo import document
    from gateway.settings import from_document

    with_key = document(1, {"ANTHROPIC_API_KEY": "sk-ant-x"})
    without = document(1, {})

    loaded = from_document(with_key, {"ANTHROPIC_API_KEY": "sk-ant-x"}, {}, presets=PRESETS)
    assert "claude-sonnet-4-6" in loaded.models
    assert "gpt-4o" not in loaded.models
    assert not any(name.startswith("claude") for name in without["models"])


def test_config_by_variable_and_by_place(tmp_path: Path) -> None:
    """Without --config the file named by GATEWAY_CONFIG is read, else ./gateway.toml."""
    path = tmp_path / "gateway.toml"
    path.write_text(toml(standard("http://127.0.0.1:9")))
    command = [sys.executable, "-m", "gateway", "models"]

    named = run("models", GATEWAY_CONFIG=str(path))
    placed = subprocess.run(
        command, cwd=tmp_path, env=QUIET | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )

    assert named.stdout.splitlines()[1].split() == [
        "fallback", "mid", "2.500000", "10.000000", "10000000", "fake-openai/first,", "fake-openai/second",
    ]  # fmt: skip
    assert placed.stdout == named.stdout


def test_a_new_key_can_be_pasted(tmp_path: Path) -> None:
    """`keys` prints lines that gateway.toml takes, and another key each time."""
    first, second = run("keys").stdout, run("keys").stdout
    path = tmp_path / "gateway.toml"
    path.write_text(toml(standard("http://127.0.0.1:9")) + first)

    checked = run("check", "--config", str(path))

    assert checked.stderr == ""
    assert "4 keys" in checked.stdout
    assert first != second


async def test_a_refusal_can_be_traced(provider: FakeProvider) -> None:
    """The id that a refused client was given is on its line in the log."""
    async with Gateway(standard(provider.base_url)) as gateway:
        reply = await gateway.client("anm-sk-wrong").request("POST", "/v1/chat/completions", chat("m"))
        (line,) = await gateway.logged("request.refused")

    assert (line["reason"], line["status"]) == ("invalid_api_key", 401)
    assert line["request_id"] == dict(reply.headers)["x-request-id"]
