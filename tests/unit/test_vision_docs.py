"""What docs/vision.md says of presets and bounds is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.pipeline.stages.pictures import FETCHES_AT_ONCE, STILL_S, PictureTimes
from gateway.policy.pictures import MAX_PICTURES, MAX_WORK, PictureRules
from gateway.providers.presets import PRESETS
from gateway.settings.sections import MIB, StreamSettings, VisionSettings

TEXT = " ".join((Path(__file__).parents[2] / "docs" / "vision.md").read_text(encoding="utf-8").split())


def test_presets_that_fetch() -> None:
    """The document names the presets whose vendors fetch images, and no other."""
    said = re.search(r"These are the presets ([^.]+)\.", TEXT)

    assert said is not None
    fetch = sorted(preset.name for preset in PRESETS.values() if preset.fetches_images)
    assert re.findall(r"`(\w+)`", said[1]) == fetch


def test_bounds() -> None:
    """Its numbers are the defaults."""
    settings = VisionSettings()

    assert f"at most {settings.max_image_bytes // MIB} MiB long" in TEXT
    assert f"at most {settings.max_image_pixels // 1_000_000} million pixels" in TEXT
    assert f"have {settings.fetch_s:g} s" in TEXT
    assert f"at most {MAX_PICTURES:,} images, and at most {MAX_WORK} that the gateway has to fetch or convert" in TEXT
    assert FETCHES_AT_ONCE == 8
    assert "eight at a time" in TEXT


def test_the_rules_are_the_settings() -> None:
    """Settings and rules have the same defaults; the stage's times are the defaults."""
    settings, rules = VisionSettings(), PictureRules()

    assert (rules.max_bytes, rules.max_pixels) == (settings.max_image_bytes, settings.max_image_pixels)
    times = PictureTimes.within(StreamSettings().commit_after_s, fetch_s=settings.fetch_s)
    assert times == PictureTimes(settings.fetch_s, STILL_S)


@pytest.mark.parametrize("commit_after_s", [0.1, 2.0, 20.0, 60.0])
def test_work_on_images_ends_before_a_stream_is_committed(commit_after_s: float) -> None:
    """A conversion, the fetches and one more conversion fit into the time, whatever that is."""
    times = PictureTimes.within(commit_after_s, fetch_s=10.0)

    assert times.still_s + times.fetch_s + times.still_s < commit_after_s
