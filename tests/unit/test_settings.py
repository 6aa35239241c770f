"""Where settings come from, and what is said when they are wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gateway.providers.presets import PRESETS
from gateway.settings import Settings, SettingsError, environment, from_document, load
from gateway.settings.fields import rules_of, variable_of
from gateway.settings.sections import SCALAR_SECTIONS

SCALARS = [(section, name) for section, cls in SCALAR_SECTIONS.items() for name in rules_of(cls)]
# Another valid value than the default for every scalar setting, as it is written in a variable.
OTHERS = {
    "host": "0.0.0.0",
    "region": "sg",
    "provider": "judge",
    "model": "omni-moderation-2024-09-26",
    "database_url": "postgres://db/gateway",
    "redis_url": "redis://cache:6379/0",
    "max_image_body_bytes": "33554432",
    "drain_s": "20",
    "fetch_s": "9",
    "exit_s": "28",
    "heartbeat_s": "9.5",
    "breaker_open_max_s": "60",
    "metadata_frame": "bare",
    "trusted_proxies": "10.0.0.0/8",
    "durability": "redis-stream",
    "directory": "/srv/journal",
    "fsync": "false",
    "bill_interrupted": "false",
    "shipped": "true",
    "format": "console",
    "level": "debug",
}


def settings(
    document: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    return from_document(document or {}, environ or {}, overrides or {}, presets=PRESETS)


def problems(
    document: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings(document, environ, overrides)
    return caught.value.problems


def test_defaults() -> None:
    """Without file, environment and options everything has its documented default."""
    got = load(None, {}, {}, presets=PRESETS)

    assert (got.server.host, got.server.port, got.server.region, got.server.workers) == ("127.0.0.1", 8080, "id", 1)
    assert (got.server.max_body_bytes, got.server.max_image_body_bytes) == (4 << 20, 24 << 20)
    assert (got.server.accept_s, got.server.drain_s, got.server.exit_s) == (3, 22, 27)
    assert (got.stream.first_token_s, got.stream.idle_s, got.stream.non_stream_s) == (60, 90, 100)
    assert (got.stream.heartbeat_s, got.stream.commit_after_s, got.stream.write_stall_s) == (15, 20, 30)
    assert (got.upstream.connect_s, got.upstream.max_connections, got.upstream.retry_budget_percent) == (3, 0, 10)
    assert (got.storage.database_url, got.storage.redis_url) == ("sqlite:///gateway.db", "")
    assert (got.models, got.providers, got.keys) == ({}, {}, {})


@pytest.mark.parametrize(("section", "name"), SCALARS)
def test_every_scalar_from_the_environment(section: str, name: str) -> None:
    """Each scalar setting has its GATEWAY_<SECTION>_<NAME>, and text becomes the type of the setting."""
    before = getattr(getattr(settings(), section), name)
    text = OTHERS.get(name) or str(before + 1).removesuffix(".0")

    needs = {"GATEWAY_STORAGE_REDIS_URL": "redis://cache"} if name == "durability" else {}
    document = {"providers": {"judge": {"preset": "ollama"}}} if name == "provider" else {}
    after = getattr(getattr(settings(document, {**needs, variable_of(section, name): text}), section), name)

    assert type(before) is type(after)
    assert before != after
    assert text in (str(after), str(after).removesuffix(".0"), str(after).lower())


def test_precedence() -> None:
    """Option, then GATEWAY_*, then the platform's variable, then the file, then the default."""
    layers: list[tuple[int, dict[str, Any]]] = [
        (1, {"overrides": {"server.port": 1}}),
        (2, {"environ": {"GATEWAY_SERVER_PORT": "2"}}),
        (3, {"environ": {"PORT": "3"}}),
        (4, {"document": {"server": {"port": 4}}}),
    ]

    for start in range(len(layers)):
        merged: dict[str, dict[str, Any]] = {"document": {}, "environ": {}, "overrides": {}}
        for _, layer in layers[start:]:
            for kind, values in layer.items():
                merged[kind] |= values
        assert layers[start][0] == settings(**merged).server.port
    assert settings().server.port == 8080


def test_platform_variables() -> None:
    """Heroku's four variables are honoured, and with PORT the server can be reached from outside."""
    got = settings(
        environ={
            "PORT": "5000",
            "WEB_CONCURRENCY": "3",
            "DATABASE_URL": "postgres://u:p@db/x",
            "REDIS_URL": "rediss://:p@cache:6380",
        }
    )

    assert (got.server.host, got.server.port, got.server.workers) == ("0.0.0.0", 5000, 3)
    assert (got.storage.database_url, got.storage.redis_url) == ("postgres://u:p@db/x", "rediss://:p@cache:6380")


@pytest.mark.parametrize(
    "given",
    [
        {"document": {"server": {"host": "::1"}}},
        {"environ": {"GATEWAY_SERVER_HOST": "::1"}},
        {"overrides": {"server.host": "::1"}},
    ],
)
def test_a_host_of_ones_own_beats_the_platform(given: dict[str, Any]) -> None:
    """PORT changes the host only where nobody gave one."""
    given = {**given, "environ": {"PORT": "5000", **given.get("environ", {})}}

    assert settings(**given).server.host == "::1"


def test_what_is_not_given_does_not_count() -> None:
    """An option that is None and a variable that is empty leave the value to the next source."""
    got = settings({"server": {"port": 4}}, {"PORT": "", "GATEWAY_SERVER_PORT": ""}, {"server.port": None})

    assert (got.server.port, got.server.host) == (4, "127.0.0.1")


def test_foreign_variables() -> None:
    """Variables that only look like ours are left alone: other sections, and Kubernetes' description of services."""
    environ = {
        "GATEWAY_CONFIG": "x.toml",
        "GATEWAY_PORT": "tcp://10.0.0.1:80",
        "GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_SERVER_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_SERVER_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PATH": "/bin",
    }

    assert settings() == settings(environ=environ)


def test_all_problems_at_once() -> None:
    """Every problem of every source is reported together, each with the place where it can be mended."""
    found = problems(
        {"server": {"port": 70000, "colour": 1}, "stream": {"idle_s": "long"}, "sever": {}, "logging": 5},
        {"GATEWAY_STREAM_IDEL_S": "1", "WEB_CONCURRENCY": "many"},
        {"server.region": "not a region", "server.hots": "x"},
    )

    assert sorted(found) == sorted(
        [
            "sever: there is no such setting; did you mean server?",
            "logging: is not a table",
            "server.port: 70000 is not within 0 to 65535",
            "server.colour: there is no such setting",
            'stream.idle_s: "long" is not a number',
            "GATEWAY_STREAM_IDEL_S: there is no such setting; did you mean GATEWAY_STREAM_IDLE_S?",
            'WEB_CONCURRENCY: "many" is not a whole number',
            '--region: "not a region" is not a region of at most 32 letters, digits and dashes',
            "--hots: there is no such setting; did you mean host?",
        ]
    )


@pytest.mark.parametrize("value", ["8080", 8080.0, True, [8080], {}])
def test_types_of_the_file_are_strict(value: object) -> None:
    """A number of the file is a number; text, a fraction, a truth value or a list is not taken for one."""
    (problem,) = problems({"server": {"port": value}})

    assert re.fullmatch(r"server\.port: .+ is not a whole number", problem)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), -1.0, 0.0, 3601])
def test_times_have_bounds(value: float) -> None:
    """No time is zero, negative, endless, or no number at all."""
    (problem,) = problems({"stream": {"idle_s": value}})

    assert problem.endswith("is not within 0.01 to 3600")


@pytest.mark.parametrize(("section", "name"), SCALARS)
def test_every_bound_holds(section: str, name: str) -> None:
    """Every number has bounds, and a value on either side of them is refused."""
    rule = rules_of(SCALAR_SECTIONS[section])[name]

    if rule.written not in (int, float):
        assert rule.bounds == ""
        return
    assert rule.low is not None
    assert rule.high is not None
    for value in (rule.low - 1, rule.high + 1):
        assert any(problem.startswith(f"{section}.{name}: ") for problem in problems({section: {name: value}}))


@pytest.mark.parametrize(
    ("section", "values", "problem"),
    [
        (
            "server",
            {"drain_s": 27},
            "server.drain_s: 27 leaves less than 4.5 s until exit_s (27) for the last frames and for closing",
        ),
        ("server", {"max_body_bytes": 32 << 20}, "at most max_image_body_bytes"),
        ("upstream", {"breaker_open_s": 31}, "at most breaker_open_max_s"),
        ("stream", {"heartbeat_s": 25}, "stream.heartbeat_s: 25 is not within 0.01 to 24"),
        (
            "storage",
            {"database_url": "mysql://u:hunter2@db"},
            "the value is not a sqlite:, postgres: or postgresql: URL",
        ),
        *(
            ("storage", {"database_url": url}, "the value is not a SQLite URL that names a file")
            for url in ("sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:gateway.db", "sqlite://gateway.db")
        ),
        ("storage", {"redis_url": "http://:hunter2@cache"}, "the value is not a redis:, rediss: or unix: URL"),
        ("logging", {"level": "loud"}, '"loud" is not one of "debug", "info", "warning", "error"'),
        ("server", {"host": ""}, '"" is not a host name or address'),
        (
            "server",
            {"trusted_proxies": "10.0.0.0/8, all"},
            'is not networks such as "10.0.0.0/8, 2001:db8::/32", or everybody is in them',
        ),
        ("server", {"trusted_proxies": "0.0.0.0/0"}, "or everybody is in them"),
    ],
)
def test_relations_and_checks(section: str, values: dict[str, object], problem: str) -> None:
    """Settings that do not go together, and texts that are not what they should be, are refused without passwords."""
    (found,) = problems({section: values})

    assert problem in found
    assert "hunter2" not in found


def test_file(tmp_path: Path) -> None:
    """The file is read where it is; files of keys are found beside it, not in the working directory."""
    (tmp_path / "openai.key").write_text("sk-from-a-file\n")
    path = tmp_path / "gateway.toml"
    path.write_text('[server]\nport = 9000\n[providers.a]\npreset = "openai"\napi_key = { file = "openai.key" }\n')

    got = load(str(path), {}, {}, presets=PRESETS)

    assert got.server.port == 9000
    assert got.providers["a"].api_key is not None
    assert got.providers["a"].api_key.reveal() == "sk-from-a-file"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"port = \n", "Invalid value (at line 1, column 8)"),
        (b"\xff\xfe", "is not UTF-8 text (at byte 0)"),
        (b"[keys.'anm-sk-canary']\n[keys.'anm-sk-canary']\n", "twice"),
        (b"x = " + b"1" * 5000, "cannot be read: Exceeds the limit ("),
        (b"x = " + b"[" * 5000, "is nested too deeply"),
        (b"x = " + b"{a = " * 5000, "is nested too deeply"),
    ],
)
def test_unreadable_file(tmp_path: Path, data: bytes, problem: str) -> None:
    """A file that is no TOML is one problem with file and place; a key in it, such as one given twice, is not shown."""
    path = tmp_path / "gateway.toml"
    path.write_bytes(data)

    with pytest.raises(SettingsError) as caught:
        load(str(path), {}, {}, presets=PRESETS)

    (found,) = caught.value.problems
    assert found.startswith(f"{path}: ")
    assert problem in found
    assert "canary" not in found


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there is a problem, not a reason to run with defaults."""
    with pytest.raises(SettingsError, match="No such file"):
        load(str(tmp_path / "none.toml"), {}, {}, presets=PRESETS)


def test_load_is_pure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is handed in counts; the process's environment is read by `environment` alone, as a copy."""
    monkeypatch.setenv("GATEWAY_SERVER_PORT", "1234")

    assert load(None, {}, {}, presets=PRESETS).server.port == 8080
    assert environment()["GATEWAY_SERVER_PORT"] == "1234"
    assert load(None, environment(), {}, presets=PRESETS).server.port == 1234
