"""One row per vendor that speaks a dialect we know. An oddity is a named function, never a flag.

Base URLs and credential headers are those of the vendors' public API references.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.core.catalog import DialectName, ProviderType


@dataclass(frozen=True, slots=True)
class Preset:
    """A vendor. `base_url` None means that the operator has to give one.

    `auth` makes the credential header of a key; `key_variable` is the environment variable its own SDK reads.
    """

    name: str
    dialect: DialectName
    auth: Callable[[str], tuple[str, str]]
    base_url: str | None = None
    type: ProviderType = "cloud_direct"
    region: str = "US"
    key_variable: str | None = None


def bearer(key: str) -> tuple[str, str]:
    """The usual `Authorization: Bearer` header."""
    return "Authorization", f"Bearer {key}"


def x_api_key(key: str) -> tuple[str, str]:
    """Anthropic's own header."""
    return "x-api-key", key


_ROWS = (
    Preset("openai", "openai_chat", bearer, "https://api.openai.com/v1", key_variable="OPENAI_API_KEY"),
    Preset(
        "anthropic", "anthropic_messages", x_api_key, "https://api.anthropic.com", key_variable="ANTHROPIC_API_KEY"
    ),
    Preset(
        "deepseek",
        "openai_chat",
        bearer,
        "https://api.deepseek.com/v1",
        region="CN",
        key_variable="DEEPSEEK_API_KEY",
    ),
    Preset("groq", "openai_chat", bearer, "https://api.groq.com/openai/v1", key_variable="GROQ_API_KEY"),
    Preset("openai_compatible", "openai_chat", bearer, type="self_hosted", region="ID"),
    Preset("anthropic_compatible", "anthropic_messages", x_api_key, type="self_hosted", region="ID"),
)

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in _ROWS}
