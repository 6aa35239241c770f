"""The text of a key."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.credentials import ENTROPY_BYTES, Prefix, digest_of, is_well_formed, last4, make_secret

entropies = st.binary(min_size=ENTROPY_BYTES, max_size=ENTROPY_BYTES)


@given(entropies, st.sampled_from(["anm-sk", "anm-ak"]))
def test_made(entropy: bytes, prefix: Prefix) -> None:
    """A key is its kind and 49 letters and digits, whatever the chance, and is well-formed."""
    secret = make_secret(prefix, entropy)

    assert re.fullmatch(rf"{prefix}-[0-9A-Za-z]{{49}}", secret)
    assert is_well_formed(secret)
    assert last4(secret) == secret[-4:]


@given(entropies, st.integers(0, 55), st.sampled_from("aZ09-_ "))
def test_typing_error(entropy: bytes, place: int, char: str) -> None:
    """Another character anywhere is told without asking anybody."""
    secret = make_secret("anm-sk", entropy)
    wrong = secret[:place] + char + secret[place + 1 :]

    assert is_well_formed(wrong) is (wrong == secret)


def test_kinds() -> None:
    """A key of one kind cannot be made one of the other by its prefix."""
    secret = make_secret("anm-sk", bytes(ENTROPY_BYTES))

    assert not is_well_formed(secret.replace("anm-sk", "anm-ak"))


@given(entropies, entropies)
def test_all_the_chance_counts(one: bytes, other: bytes) -> None:
    """Two keys are the same only where their chance is, and so are their digests."""
    secrets = make_secret("anm-sk", one), make_secret("anm-sk", other)

    assert (secrets[0] == secrets[1]) is (one == other)
    assert (digest_of(secrets[0]) == digest_of(secrets[1])) is (one == other)


def test_too_little_chance() -> None:
    """A key of less chance is not made."""
    with pytest.raises(ValueError, match="32 bytes"):
        make_secret("anm-sk", bytes(16))


def test_known_answer() -> None:
    """The format stays: keys that were handed out have to be taken for ever."""
    assert make_secret("anm-ak", bytes(range(32))) == "anm-ak-003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf3KSUwI"
