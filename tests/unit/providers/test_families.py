"""Families of models by name, and what a picture costs with each."""

from __future__ import annotations

import pytest

from gateway.dialects.families import ANY_FAMILY
from gateway.providers.families import family_of

# What the vendors' own guides to vision give as examples.
PICTURES = [
    ("claude-sonnet-4-5", (200, 200), "", 64),
    ("claude-sonnet-4-5", (1000, 1000), "", 1296),
    ("claude-sonnet-4-5", (8000, 8000), "", 1568),
    ("claude-opus-4-7", (1568, 1176), "", 2352),
    ("claude-opus-4-7", (8000, 8000), "", 4784),
    ("claude-haiku-5-5", (8000, 8000), "", 4784),
    ("gpt-4o", (1024, 1024), "", 765),
    ("gpt-4o", (2048, 4096), "", 1105),
    ("gpt-4o", (4096, 8192), "low", 85),
    ("gpt-4.1-mini", (1024, 1024), "", 1659),
    ("gpt-5-mini", (1024, 1024), "", 1229),
    ("gpt-5-nano", (1024, 1024), "", 1536),
    ("gpt-5", (1024, 1024), "", 630),
    ("gpt-5.1", (1024, 1024), "", 630),
    ("gpt-5.2", (4000, 4000), "", 1844),
    ("gpt-5.4-mini", (1600, 1600), "", 3000),
    ("gpt-5.4-nano", (1600, 1600), "low", 308),
    ("gpt-5.4", (4096, 1024), "", 1229),
    ("gpt-5.5", (4096, 1024), "", 4916),
    ("gpt-5.6-sol", (9000, 9000), "", 36_000),
    ("gpt-5.5", (4096, 1024), "high", 1229),
    ("gpt-5.6-sol", (9000, 9000), "high", 3000),
    ("gpt-6-astra", (9000, 9000), "auto", 36_000),
    ("gpt-6-astra", (640, 480), "", 360),
    ("gpt-6.1-sol", (640, 480), "low", 231),
    ("gemini-2.5-flash", (384, 384), "", 258),
    ("gemini-2.5-flash", (1536, 768), "", 516),
    ("gemini-3-pro-preview", (4000, 3000), "", 1120),
    ("gemini-4-argon", (4000, 3000), "", 1120),
    ("gemma-3-27b-it", (384, 384), "", 258),
    ("kimi-k2.6", (280, 280), "", 100),
    ("moonshotai/kimi-k2.6", (9000, 9000), "", 4096),
    ("kimi-k3.1-pro", (9000, 9000), "", 16_384),
    ("accounts/fireworks/models/kimi-k3p1-pro", (9000, 9000), "", 16_384),
    ("moonshot-v1-8k-vision-preview", (9000, 9000), "", 1024),
    ("mistral-large-latest", (280, 280), "", 100),
    ("mistral-large-latest", (9000, 9000), "", 3025),
    ("grok-4", (448, 896), "", 768),
    ("grok-4", (9000, 9000), "", 1792),
    ("qwen3-vl-plus", (320, 320), "", 102),
    ("qwen3.8-max", (9000, 9000), "", 2562),
    ("qwen2.5-vl-72b-instruct", (280, 280), "", 102),
    ("meta-llama/Llama-4-Scout", (336, 336), "", 288),
]
FACTORS = [
    ("gpt-4o", 1.0), ("gpt-5.1", 1.0), ("o3", 1.0), ("gpt-4-turbo", 1.07), ("gpt-3.5-turbo", 1.07),
    ("gpt-oss-120b", 1.0), ("gpt-6-sol", 1.0), ("kimi-k3", 1.0), ("gemini-4-neon", 1.0),
    ("claude-3-5-haiku-latest", 1.2), ("anthropic/claude-sonnet-4.5", 1.2), ("claude-opus-4-6", 1.2),
    ("claude-opus-4-7", 1.4), ("anthropic/claude-opus-4.8", 1.4), ("claude-opus-5", 1.4), ("claude-haiku-5", 1.4),
    ("us.anthropic.claude-sonnet-4-6-v1:0", 1.2),
    ("deepseek-chat", 1.08), ("deepseek-ai/DeepSeek-V3", 1.08), ("qwen3-max", 1.04), ("llama-3.3-70b-versatile", 1.07),
    ("meta-llama/llama-4-maverick", 0.97), ("mistral-large-latest", 1.08), ("ministral-8b", 1.08),
    ("codestral-2501", 1.08),
    ("some-model", 1.0), ("photo1", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("model", "factor"), FACTORS)
def test_a_family_by_its_name(model: str, factor: float) -> None:
    """A model is of its family whoever hosts it, in whatever case; what nobody knows is counted as it is."""
    assert family_of(model, "slug").factor == factor
    assert family_of(model.upper(), "slug").factor == factor


@pytest.mark.parametrize(("model", "size", "detail", "tokens"), PICTURES)
def test_what_a_picture_costs(model: str, size: tuple[int, int], detail: str, tokens: int) -> None:
    """Pictures are counted by the rule of the vendor's own guide."""
    assert family_of(model, "slug").image(*size, detail) == tokens


def test_a_deployment_has_the_slugs_family() -> None:
    """Where the provider's name says nothing, the catalogue's does; where both do, the provider's counts."""
    assert family_of("prod-eu-2", "claude-sonnet-4-5").factor == 1.2
    assert family_of("deepseek-chat", "claude-sonnet-4-5").factor == 1.08
    assert family_of("prod-eu-2", "assistant") is ANY_FAMILY


@pytest.mark.parametrize("size", [(1, 1), (1, 2**31 - 1), (2**31 - 1, 2**31 - 1)])
def test_no_picture_is_absurd(size: tuple[int, int]) -> None:
    """A header may claim any size: no family makes nothing of a picture, or more than a context window."""
    counts = [family_of(model, "slug").image(*size, detail) for model, _ in FACTORS for detail in ("", "low", "high")]

    assert min(counts) >= 1
    assert max(counts) < 100_000
