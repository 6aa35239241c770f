"""What `gateway settings` and `gateway check` print."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gateway.providers.presets import PRESETS
from gateway.settings import (
    Row,
    SettingsError,
    describe,
    from_document,
    load,
    problems_text,
    settings_text,
    summary_text,
    warnings_text,
)
from gateway.settings.fields import Secret, rules_of, shown
from gateway.settings.sections import SCALAR_SECTIONS

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "gateway.toml"


def rows(document: dict[str, Any], environ: dict[str, str] | None = None, **overrides: object) -> dict[str, Row]:
    options = {name.replace("__", "."): value for name, value in overrides.items()}
    described = describe(from_document(document, environ or {}, options, presets=PRESETS))
    return {row.name: row for row in described}


def test_every_scalar_is_described() -> None:
    """The table has every scalar setting once, in the order of the documentation, with its default."""
    described = [
        row for row in describe(load(None, {}, {}, presets=PRESETS)) if row.name.split(".")[0] in SCALAR_SECTIONS
    ]

    expected = [f"{section}.{name}" for section, cls in SCALAR_SECTIONS.items() for name in rules_of(cls)]
    assert expected == [row.name for row in described]
    assert {row.origin for row in described} == {"default"}


def test_origins() -> None:
    """Each value says which source it came from."""
    got = rows(
        {"stream": {"idle_s": 30}, "metering": {"mode_weight": {"batch": "0.25"}}},
        {"PORT": "5000", "GATEWAY_LOGGING_LEVEL": "debug"},
        server__workers=2,
    )

    assert got["stream.idle_s"] == Row("stream.idle_s", "30", "file")
    assert got["server.port"] == Row("server.port", "5000", "PORT")
    assert got["server.host"] == Row("server.host", '"0.0.0.0"', "PORT")
    assert got["logging.level"] == Row("logging.level", '"debug"', "GATEWAY_LOGGING_LEVEL")
    assert got["server.workers"] == Row("server.workers", "2", "--workers")
    assert got["metering.mode_weight.batch"] == Row("metering.mode_weight.batch", '"0.25"', "file")
    assert got["metering.mode_weight.cache_hit"] == Row("metering.mode_weight.cache_hit", '"0"', "default")
    assert got["tiers.enterprise.rpm"] == Row("tiers.enterprise.rpm", "100000", "built in")


def test_values_read_as_in_the_file() -> None:
    """Prices, lists and texts are shown as they are written; keys by their id; secrets and passwords not at all."""
    settings = load(
        str(EXAMPLE),
        {
            "OPENAI_API_KEY": "sk-canary",
            "ANTHROPIC_API_KEY": "sk-canary",
            "DATABASE_URL": "postgres://u:canary@db:5432/x?password=canary",
        },
        {},
        presets=PRESETS,
    )

    text = settings_text(settings)

    got = {row.name: row.value for row in describe(settings)}
    assert got['models."gpt-4o".price.input'] == '"2.5"'
    assert got['models."llama-3.2".price.output'] == '"0"'
    assert got['models."gpt-4o".input'] == '["text", "image"]'
    assert got['models."gpt-4o".routes[0].provider'] == '"openai"'
    assert got["providers.openai.api_key"] == '"***"'
    assert got["storage.database_url"] == '"postgres://***@db:5432/x"'
    assert "canary" not in text
    assert "anm-sk-" not in text


def test_columns_are_aligned() -> None:
    """Values and origins begin in the same column in every line."""
    lines = settings_text(load(None, {}, {}, presets=PRESETS)).splitlines()

    (first,) = (line for line in lines if line.startswith("server.port "))
    value, origin = first.index("8080"), first.index("default")
    assert all(line[value - 2 : value] == "  " and line[value] != " " for line in lines)
    assert all(line[origin:] in ("default", "built in") for line in lines)


def test_problems_text() -> None:
    """One problem a line, after a line that counts them."""
    assert problems_text(SettingsError(["a: b"])) == "1 problem in the configuration:\n  a: b\n"
    assert problems_text(SettingsError(["a: b", "c: d"])) == "2 problems in the configuration:\n  a: b\n  c: d\n"


def test_secret() -> None:
    """A secret equals one with the same text and shows itself only when asked."""
    secret = Secret("canary")

    assert secret.reveal() == "canary"
    assert secret == Secret("canary") != Secret("other")
    assert secret != "canary"
    assert len({secret, Secret("canary")}) == 1
    assert "canary" not in f"{secret} {secret!r} {[secret]}"


def test_shown() -> None:
    """What was written is quoted on one line of bounded length, whatever it holds."""
    assert [shown(value) for value in (True, 1, "a")] == ["true", "1", '"a"']
    assert shown("a\nb") == "'a\\nb'"
    assert len(shown("x" * 1000)) == 60


def test_summary() -> None:
    """A good configuration is one line that names its file and counts, each noun in its number."""
    settings = load(str(EXAMPLE), {"OPENAI_API_KEY": "sk-x", "ANTHROPIC_API_KEY": "sk-x"}, {}, presets=PRESETS)
    one = dataclasses.replace(settings, models=dict(list(settings.models.items())[:1]))

    assert summary_text(settings, "a/gateway.toml") == "a/gateway.toml: fine, 3 models, 2 keys"
    assert summary_text(one, "gateway.toml") == "gateway.toml: fine, 1 model, 2 keys"
    assert warnings_text(settings) == ""


def test_warnings() -> None:
    """Without models or keys nothing is wrong and nobody is served: a line says so for each."""
    nothing = load(None, {}, {}, presets=PRESETS)

    lines = warnings_text(nothing).splitlines()

    assert summary_text(nothing, None) == "no file, so defaults and variables only: fine, 0 models, 0 keys"
    assert [line.split(", ")[0] for line in lines] == [
        "warning: no models are configured",
        "warning: no keys are configured",
    ]
