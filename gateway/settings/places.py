"""Where a provider computes, by what its entry says, and where a route through it does."""

from __future__ import annotations

from gateway.providers.aws import REGIONS, UNKNOWN
from gateway.providers.presets import Preset


def region_of(preset: Preset, own: str | None, aws_region: str | None) -> str | None:
    """
    The region of a provider whose entry says *own* and *aws_region*.

    Returns:
        None where it cannot be told: such an entry is refused.
    """
    if own is not None:
        return own
    return preset.region if preset.service is None else REGIONS.get(str(aws_region))


def region_of_route(preset: Preset, own: str | None, region: str, model: str) -> str:
    """
    Where *model* is computed, by its provider's name for it: in the provider's *region*, or in the area that it names.

    A name that tells nothing leaves it to the entry (*own*) alone.
    """
    found = preset.area(model) if preset.area is not None else None
    if found is None or (found == UNKNOWN and own is not None):
        return region
    return found
