"""Accounts in Amazon's cloud: regions, keys from the file and from the usual variables, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.core.catalog import Provider
from gateway.providers.aws import REGIONS
from gateway.providers.presets import PRESETS
from gateway.providers.sigv4 import Credential, Signer
from gateway.settings import Settings, SettingsError, account_at_hand, build_catalog, from_document, settings_text

KEYS = {"AWS_ACCESS_KEY_ID": "AKIACANARY", "AWS_SECRET_ACCESS_KEY": "canary+secret/"}
ENVIRON = {**KEYS, "AWS_REGION": "ap-southeast-3"}
OWN = {"aws_access_key_id": "AKIAOWN", "aws_secret_access_key": "own"}
CLAUDE = "anthropic.claude-sonnet-4-5-20250929-v1:0"


def settings(
    environ: Mapping[str, str] = ENVIRON, model: str = CLAUDE, folder: Path = Path(), **entry: Any
) -> Settings:
    """One account with *entry*, and a route through it to *model*."""
    document = {
        "providers": {"account": {"preset": "bedrock", **entry}},
        "models": {
            "claude": {
                "class": "premium",
                "context_window": 200_000,
                "price": {"input": "3", "output": "15"},
                "routes": [{"provider": "account", "model": model}],
            }
        },
    }
    return from_document(document, environ, {}, presets=PRESETS, folder=folder)


def provider(
    environ: Mapping[str, str] = ENVIRON, model: str = CLAUDE, folder: Path = Path(), **entry: Any
) -> Provider:
    """The account as the core gets it."""
    catalog = build_catalog(settings(environ, model, folder, **entry), PRESETS)
    return catalog.models["claude"].routes[0].provider


def problems(environ: Mapping[str, str] = ENVIRON, **entry: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings(environ, **entry)
    return caught.value.problems


def test_the_usual_variables() -> None:
    """A bare preset: region, address, place and keys follow from the environment."""
    got = provider()

    assert (got.dialect, got.type, got.weight.numerator / got.weight.denominator) == (
        "bedrock_converse",
        "bedrock",
        0.5,
    )
    assert got.base_url == "https://bedrock-runtime.ap-southeast-3.amazonaws.com"
    assert (got.region, got.secret) == ("ID", None)
    assert got.signer == Signer(Credential("AKIACANARY", "canary+secret/"), "ap-southeast-3", "bedrock")


@pytest.mark.parametrize(
    ("region", "place"),
    [
        ("ap-southeast-3", "ID"),
        ("ap-southeast-1", "SG"),
        ("us-east-1", "US"),
        ("eu-west-3", "EU"),
        ("eu-west-2", "GB"),
    ],
)
def test_regions(region: str, place: str) -> None:
    """Each region of the file has its address and its country."""
    got = provider(aws_region=region)

    assert (got.region, got.base_url) == (place, f"https://bedrock-runtime.{region}.amazonaws.com")
    assert got.signer == Signer(Credential("AKIACANARY", "canary+secret/"), region, "bedrock")


def test_the_other_variable_of_a_region() -> None:
    """AWS_DEFAULT_REGION counts where AWS_REGION is not set; the file counts before both."""
    environ = {**KEYS, "AWS_DEFAULT_REGION": "us-west-2"}

    assert provider(environ).region == "US"
    assert provider({**environ, "AWS_REGION": "ap-southeast-1"}).region == "SG"
    assert provider(environ, aws_region="ap-southeast-3").region == "ID"


def test_temporary_keys() -> None:
    """With a token from the environment, or from files, which a reload reads again."""
    token = Signer(Credential("AKIACANARY", "canary+secret/", "canary=="), "ap-southeast-3", "bedrock")

    assert provider({**ENVIRON, "AWS_SESSION_TOKEN": "canary=="}).signer == token


def test_keys_from_files(tmp_path: Path) -> None:
    """Written as a provider's key is."""
    for name in ("key", "secret", "token"):
        (tmp_path / name).write_text(f"canary-{name}\n")

    got = provider(
        {"AWS_REGION": "us-east-1"},
        folder=tmp_path,
        aws_access_key_id={"file": "key"},
        aws_secret_access_key={"file": "secret"},
        aws_session_token={"file": "token"},
    )

    assert got.signer == Signer(Credential("canary-key", "canary-secret", "canary-token"), "us-east-1", "bedrock")


def test_the_keys_of_one_account_belong_together() -> None:
    """Who names keys in the file gets no token of another account from the environment."""
    got = provider({**ENVIRON, "AWS_SESSION_TOKEN": "canary"}, **OWN)

    assert got.signer == Signer(Credential("AKIAOWN", "own"), "ap-southeast-3", "bedrock")


def test_a_key_of_bedrocks_own() -> None:
    """`api_key` is sent as it is, whatever the environment has."""
    got = provider(api_key="canary-key")

    assert (got.secret, got.signer) == (("Authorization", "Bearer canary-key"), None)
    assert got.secrets == ("canary-key",)


def test_an_address_of_ones_own() -> None:
    """An endpoint in one's own network; the region still decides on the signature and the place."""
    got = provider(base_url="https://vpce-1.example")

    assert (got.base_url, got.region) == ("https://vpce-1.example", "ID")


@pytest.mark.parametrize(
    ("model", "region"),
    [
        (CLAUDE, "ID"),
        ("global.anthropic.claude-opus-4-6-v1", "GLOBAL"),
        ("apac.amazon.nova-pro-v1:0", "APAC"),
        ("us.anthropic.claude-sonnet-4-6", "US"),
        ("eu.anthropic.claude-sonnet-4-6", "EU"),
        ("arn:aws:bedrock:ap-southeast-3:123456789012:inference-profile/global.anthropic.claude-opus-4-6-v1", "GLOBAL"),
        ("arn:aws:bedrock:ap-southeast-3::foundation-model/" + CLAUDE, "ID"),
        ("deepseek.v3.2", "ID"),
        ("zai.glm-4.6", "ID"),
        ("us-gov.anthropic.claude-sonnet-9", "US"),
        ("new.anthropic.claude-sonnet-9", "UNKNOWN"),
        ("arn:aws:bedrock:ap-southeast-3:123456789012:application-inference-profile/abc123", "UNKNOWN"),
    ],
)
def test_where_a_profile_is_computed(model: str, region: str) -> None:
    """A profile spans regions: its calls are never said to be computed in the region that is asked."""
    got = provider(model=model)

    assert got == replace(provider(), region=region)


def test_an_operator_who_knows() -> None:
    """What a name does not tell the file may; what it tells the file cannot talk away."""
    own = "arn:aws:bedrock:ap-southeast-3:123456789012:application-inference-profile/abc123"

    assert provider(model=own, region="ID").region == "ID"
    assert provider(model="global.anthropic.claude-opus-4-6-v1", region="ID").region == "GLOBAL"


SIGNED = "is missing; requests are signed with it"
ONLY_REGION = {"AWS_REGION": "us-east-1"}
NOT_SET = {"env": "NOT_SET"}


@pytest.mark.parametrize(
    ("environ", "entry", "told"),
    [
        (KEYS, {}, ["aws_region: is missing, and neither AWS_REGION nor AWS_DEFAULT_REGION is set"]),
        (ENVIRON, {"aws_region": "Jakarta"}, ["aws_region: "]),
        (ENVIRON, {"aws_region": "us-east-1.evil.example"}, ["aws_region: "]),
        (
            ENVIRON,
            {"aws_region": "cn-north-1"},
            [f"{name}: is missing; cn-north-1 is no region that is known here" for name in ("base_url", "region")],
        ),
        (ONLY_REGION, {}, [f"aws_access_key_id: {SIGNED}, or an api_key", f"aws_secret_access_key: {SIGNED}, or"]),
        ({**ONLY_REGION, "AWS_ACCESS_KEY_ID": "x"}, {}, [f"aws_secret_access_key: {SIGNED}"]),
        (ENVIRON, {"aws_access_key_id": "x"}, [f"aws_secret_access_key: {SIGNED}"]),
        (ENVIRON, {"api_key": "x", **OWN}, ["aws_access_key_id: there is an api_key as well"]),
        (ENVIRON, {"aws_session_token": NOT_SET, **OWN}, ["aws_session_token: the environment variable NOT_SET"]),
        (ENVIRON, {"api_key": NOT_SET}, ["api_key: the environment variable NOT_SET is not set"]),
    ],
)
def test_what_is_refused(environ: dict[str, str], entry: dict[str, Any], told: list[str]) -> None:
    """All that is wrong with an account, each with its place, and no key in it."""
    found = problems(environ, **entry)

    assert len(found) == len(told)
    for problem, beginning in zip(found, told, strict=True):
        assert problem.startswith(f"providers.account.{beginning}")
    assert "canary" not in "".join(found).lower()


def test_settings_of_aws_elsewhere() -> None:
    """With a vendor of another cloud they would do nothing, so they are refused."""
    document = {"providers": {"main": {"preset": "openai", "api_key": "x", "aws_region": "us-east-1"}}}

    with pytest.raises(SettingsError) as caught:
        from_document(document, ENVIRON, {}, presets=PRESETS)

    assert caught.value.problems == ["providers.main.aws_region: the preset openai is not in Amazon's cloud; remove it"]


def test_keys_show_themselves_to_nobody() -> None:
    """Neither the table of settings nor a `repr` shows one."""
    got = settings({**ENVIRON, "AWS_SESSION_TOKEN": "canary=="})

    shown = settings_text(got) + repr(got) + repr(provider())
    assert "canary" not in shown.lower()
    assert "providers.account.aws_region" in shown


@pytest.mark.parametrize(
    ("region", "slugs", "route"),
    [
        ("ap-southeast-3", {"claude-sonnet-bedrock", "claude-sonnet-bedrock-id"}, "anthropic."),
        ("ap-southeast-1", {"claude-sonnet-bedrock", "claude-sonnet-bedrock-sg"}, "anthropic."),
        ("us-west-2", {"claude-sonnet-bedrock", "claude-sonnet-bedrock-us"}, "us.anthropic."),
        ("eu-west-3", {"claude-sonnet-bedrock", "claude-sonnet-bedrock-eu"}, "eu.anthropic."),
    ],
)
def test_shipped_models(region: str, slugs: set[str], route: str) -> None:
    """The catalogue's models of the account's region are served, each computed there, and those of anywhere."""
    document = {"catalogue": {"shipped": True}, "providers": {"account": {"preset": "bedrock", "aws_region": region}}}

    got = build_catalog(from_document(document, ENVIRON, {}, presets=PRESETS), PRESETS)

    found = {slug: model for slug, model in got.models.items() if slug.startswith("claude-sonnet-bedrock")}
    (anywhere,) = found.pop("claude-sonnet-bedrock-global").routes
    assert anywhere.provider.region == "GLOBAL"
    assert found.keys() == slugs
    for model in found.values():
        (one,) = model.routes
        assert one.model.startswith(route)
        assert one.provider.region == REGIONS[region]


def test_a_residency_that_leaves_no_route() -> None:
    """A model that is to stay in Indonesia cannot be served by a profile, wherever that is asked."""
    model = {
        "class": "premium",
        "context_window": 200_000,
        "price": {"input": "3", "output": "15"},
        "residency": "id_only",
        "routes": [{"provider": "account", "model": "global.anthropic.claude-opus-4-6-v1"}],
    }
    document = {"providers": {"account": {"preset": "bedrock"}}, "models": {"claude": model}}

    with pytest.raises(SettingsError) as caught:
        from_document(document, ENVIRON, {}, presets=PRESETS)

    assert [problem.split(":")[0] for problem in caught.value.problems] == ["models.claude.residency"]


@pytest.mark.parametrize(
    ("environ", "entry"),
    [
        (ENVIRON, {"preset": "bedrock"}),
        (
            {"AWS_REGION": "us-east-1", "AWS_BEARER_TOKEN_BEDROCK": "x"},
            {"preset": "bedrock", "api_key": {"env": "AWS_BEARER_TOKEN_BEDROCK"}},
        ),
        ({**KEYS, "AWS_DEFAULT_REGION": "eu-west-1"}, {"preset": "bedrock"}),
        (KEYS, None),
        ({**KEYS, "AWS_REGION": "mars-north-1"}, None),
        ({"AWS_REGION": "us-east-1"}, None),
        ({"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x"}, None),
    ],
)
def test_an_account_at_hand(environ: dict[str, str], entry: dict[str, Any] | None) -> None:
    """What `make run` finds: an account whose region and credential are set, and which loads without a problem."""
    found = account_at_hand(PRESETS["bedrock"], environ)

    assert found == entry
    if found is not None:
        from_document({"providers": {"bedrock": found}}, environ, {}, presets=PRESETS)
