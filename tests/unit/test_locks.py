"""The hash-locked requirements serve every Python that the package is for."""

from __future__ import annotations

import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKED = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-test.txt"])
@pytest.mark.parametrize("python", ["3.11.0", "3.11.2", "3.12.0", "3.13.0"])
def test_a_lock_is_whole(lock: str, python: str) -> None:
    """What a locked package, as installed here, needs on another Python than the lock was made with is locked too."""
    names = {canonicalize_name(name) for name in LOCKED.findall((ROOT / lock).read_text())}
    place = {"python_full_version": python, "python_version": python.rpartition(".")[0], "extra": ""}

    assert "aiohttp" in names
    needed = {
        canonicalize_name(need.name)
        for name in names
        for need in map(Requirement, requires(name) or ())
        if need.marker is None or need.marker.evaluate(place)
    }

    assert needed - names == set()
