"""What the environment says of an account in Amazon's cloud, put where an entry of the file does not say it itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.providers.aws import REGIONS
from gateway.providers.presets import Preset

# The usual variables, by AWS's guide to its SDKs and tools; the first that is set counts.
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_KEYS = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
}


def with_account(
    providers: Mapping[str, Any], environ: Mapping[str, str], presets: Mapping[str, Preset]
) -> dict[str, Any]:
    """
    The table *providers* as parsed, with what its entries leave to the environment.

    The three keys belong together: who names one of them gets none of another account.
    """
    return {name: _entry(entry, environ, presets) for name, entry in providers.items()}


def account_at_hand(preset: Preset, environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The entry of an account at *preset* that needs no more than what is in the usual variables; None without that."""
    key = {"api_key": {"env": preset.key_variable}} if environ.get(preset.key_variable or "") else {}
    if preset.service is None:
        return {"preset": preset.name, **key} if key else None
    has_keys = bool(key) or all(environ.get(_KEYS[name]) for name in ("aws_access_key_id", "aws_secret_access_key"))
    return {"preset": preset.name, **key} if has_keys and _region_in(environ) in REGIONS else None


def _region_in(environ: Mapping[str, str]) -> str | None:
    return next((environ[name].strip() for name in _REGION if environ.get(name)), None)


def _entry(entry: Any, environ: Mapping[str, str], presets: Mapping[str, Preset]) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("preset"), str):
        return entry  # what is wrong with it is said elsewhere
    preset = presets.get(entry["preset"])
    if preset is None or preset.service is None:
        return entry
    region = _region_in(environ)
    found: dict[str, Any] = {"aws_region": region} if region is not None else {}
    if not entry.keys() & {"api_key", *_KEYS}:
        found |= {name: {"env": variable} for name, variable in _KEYS.items() if environ.get(variable)}
    return {**found, **entry}
