"""Settings: a TOML file, the environment and the command line become frozen facts, or a list of all that is wrong."""

from gateway.settings.aws import account_at_hand
from gateway.settings.catalog import build_catalog, build_keys, key_id, moderation_provider
from gateway.settings.description import Row, describe, problems_text, settings_text, summary_text, warnings_text
from gateway.settings.entries import KeyEntry, MeteringSettings, ModelEntry, ProviderEntry, TierEntry
from gateway.settings.fields import Secret
from gateway.settings.listing import models_text
from gateway.settings.loading import (
    Settings,
    SettingsError,
    Stored,
    environment,
    export,
    from_document,
    load,
    load_stored,
)
from gateway.settings.sections import (
    CatalogueSettings,
    LedgerSettings,
    LimitsSettings,
    LoggingSettings,
    ModerationSettings,
    ServerSettings,
    StorageSettings,
    StreamSettings,
    UpstreamSettings,
    VisionSettings,
)
from gateway.settings.shipped import shipped_presets
from gateway.settings.terms import FileTerms

__all__ = [
    "CatalogueSettings",
    "FileTerms",
    "KeyEntry",
    "LedgerSettings",
    "LimitsSettings",
    "LoggingSettings",
    "MeteringSettings",
    "ModelEntry",
    "ModerationSettings",
    "ProviderEntry",
    "Row",
    "Secret",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "StorageSettings",
    "Stored",
    "StreamSettings",
    "TierEntry",
    "UpstreamSettings",
    "VisionSettings",
    "account_at_hand",
    "build_catalog",
    "build_keys",
    "describe",
    "environment",
    "export",
    "from_document",
    "key_id",
    "load",
    "load_stored",
    "models_text",
    "moderation_provider",
    "problems_text",
    "settings_text",
    "shipped_presets",
    "summary_text",
    "warnings_text",
]
