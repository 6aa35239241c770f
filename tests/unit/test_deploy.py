"""What is shipped for operators says nothing that the code does not know."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

from gateway.__main__ import main
from gateway.http.endpoints import ENDPOINTS
from gateway.settings import ServerSettings, StreamSettings
from gateway.settings.fields import rules_of, variable_of
from gateway.settings.sections import SCALAR_SECTIONS
from gateway.settings.sources import HEROKU

ROOT = Path(__file__).resolve().parents[2]
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")


def procfile() -> dict[str, str]:
    lines = (ROOT / "Procfile").read_text().splitlines()
    return {kind: command for kind, _, command in (line.partition(": ") for line in lines)}


def app_json() -> dict[str, object]:
    content = json.loads((ROOT / "deploy/app.json").read_text())
    assert isinstance(content, dict)
    return content


def nginx_values(name: str) -> list[str]:
    """The arguments of every directive *name* in nginx.conf."""
    return re.findall(rf"^\s*{name}\s+([^;{{]+);", (ROOT / "deploy/nginx.conf").read_text(), re.MULTILINE)


def test_procfile_runs_commands_that_exist() -> None:
    """Every process type is `python -m gateway` and a command of ours; the platform migrates before it serves."""
    commands = {kind: command.split() for kind, command in procfile().items()}

    assert {kind: words[3] for kind, words in commands.items()} == {"release": "migrate", "web": "serve"}
    assert all(words[:3] == ["python", "-m", "gateway"] for words in commands.values())
    assert {words[3] for words in commands.values()} <= set(main.commands)


def test_app_json_forms_processes_of_the_procfile() -> None:
    """The formation starts process types that there are, with the buildpack for Python."""
    content = app_json()

    assert content["buildpacks"] == [{"url": "heroku/python"}]
    assert isinstance(content["formation"], dict)
    assert set(content["formation"]) == {"web"}
    assert set(content["formation"]) <= set(procfile())


def test_app_json_brings_a_database() -> None:
    """Accounts and ledger are not left to the disk of a dyno, which goes with it."""
    addons = app_json()["addons"]

    assert isinstance(addons, list)
    assert [addon for addon in addons if addon.startswith("heroku-postgresql:")]


def test_app_json_names_variables_that_are_read() -> None:
    """Each variable it asks for is a setting's, a platform's, or a key that the example configuration names."""
    settings = {variable_of(section, name) for section, cls in SCALAR_SECTIONS.items() for name in rules_of(cls)}
    example = tomllib.loads((ROOT / "docs/examples/gateway.toml").read_text())
    keys = {provider["api_key"]["env"] for provider in example["providers"].values() if "api_key" in provider}
    content = app_json()
    assert isinstance(content["env"], dict)

    assert set(content["env"]) <= settings | set(HEROKU) | keys | {"GATEWAY_CONFIG"}
    assert {"WEB_CONCURRENCY"} | keys <= set(content["env"])
    assert all(entry["description"] for entry in content["env"].values())



def test_the_licence_is_the_one_that_is_named() -> None:
    """The text in the repository is that of the licence which the package declares."""
    text = (ROOT / "LICENSE").read_text()

    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert "license = Apache-2.0\n" in (ROOT / "setup.cfg").read_text()


def test_nginx_lets_frames_through() -> None:
    """Nothing in the proxy holds frames back, and connections to the gateway are kept."""
    assert nginx_values("proxy_buffering") == ["off"]
    assert nginx_values("gzip") == ["off"]
    assert nginx_values("proxy_http_version") == ["1.1"]
    assert nginx_values("proxy_set_header Connection") == ['""']


def test_nginx_limits_fit_the_defaults() -> None:
    """The proxy waits longer than the gateway, closes idle connections first, and lets every allowed body through."""
    stream, server = StreamSettings(), ServerSettings()
    keepalive_s = [int(value.removesuffix("s")) for value in nginx_values("keepalive_timeout")]

    assert int(nginx_values("proxy_read_timeout")[0].removesuffix("s")) > stream.non_stream_s
    assert int(nginx_values("proxy_read_timeout")[0].removesuffix("s")) > stream.heartbeat_s
    assert keepalive_s[0] < server.keepalive_s
    assert int(nginx_values("client_max_body_size")[0].removesuffix("m")) * 1024**2 == server.max_image_body_bytes
    assert nginx_values("server") == [f"127.0.0.1:{server.port}"]


def test_nginx_accepts_its_file() -> None:
    """The example is valid as it stands."""
    assert NGINX is not None, "nginx is not installed; `sh tests/prepare.sh nginx` does that"
    with tempfile.TemporaryDirectory() as folder:
        command = [NGINX, "-t", "-q", "-p", folder, "-e", "stderr", "-g", "pid nginx.pid;"]
        done = subprocess.run([*command, "-c", ROOT / "deploy/nginx.conf"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_prometheus_asks_for_the_metrics() -> None:
    """The scrape goes to an endpoint that is there, at the default address."""
    text = (ROOT / "deploy/prometheus.yml").read_text()

    (path,) = re.findall(r"metrics_path: (\S+)", text)

    assert ENDPOINTS[path].kind == "metrics"
    assert f'targets: ["127.0.0.1:{ServerSettings().port}"]' in text


def test_alembic_ini_points_at_the_revisions() -> None:
    """The developers' file names the folder that the package ships."""
    parser = configparser.ConfigParser(defaults={"here": str(ROOT)})
    parser.read(ROOT / "alembic.ini")

    folder = Path(parser["alembic"]["script_location"])

    assert folder == ROOT / "gateway/storage/migrations"
    assert (folder / "env.py").is_file()


def test_every_folder_with_code_is_shipped() -> None:
    """Packages are found by their `__init__.py`: a folder of code without one, such as revisions, would be left out."""
    folders = {path.parent for path in (ROOT / "gateway").rglob("*.py")}

    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
