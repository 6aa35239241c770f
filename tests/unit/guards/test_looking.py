"""The first look at a whole text misses nothing, whatever else the text is made of."""

from __future__ import annotations

import random

import pytest

from gateway.core.guarding import Engine
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.pii import PiiEngine
from tests.unit.guards.redaction import counted

CHARS = 200_000
# What begins much that the patterns go on with, so that the automaton gets as large as it can.
ALPHABETS = (
    "0123456789 .-/()",
    "0123456789ABCDEFabcdef:.-",
    "STFG0123456789 .-A",
    "sk-anmghp_xoAIzaeyJ.:/@",
    "A1 ",
    "１2\u200b-é ",
)


@pytest.mark.parametrize("alphabet", ALPHABETS, ids=ascii)
@pytest.mark.parametrize(
    ("engine", "piece", "kind"),
    [
        (PiiEngine(), "jane.doe@example.com", "email"),
        (PiiEngine(), "NIK 3171012301900001", "nik"),
        (CredentialsEngine(), "password: Kucing123", "password"),
    ],
    ids=["email", "nik", "password"],
)
def test_behind_anything(engine: Engine, piece: str, kind: str, alphabet: str) -> None:
    """What stands behind much of what looks like the beginning of something is found."""
    text = "".join(random.Random(1).choices(alphabet, k=CHARS)) + f"\n\n{piece}\n"

    assert counted(engine, text)[-1].kind == kind
