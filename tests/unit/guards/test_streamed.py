"""What leaves of an answer that has what the engines look for, however it comes."""

from __future__ import annotations

import pytest

from gateway.core.guarding import HOLD_CHARS, Engine
from gateway.guards.credentials import CredentialsEngine
from gateway.guards.holding import Holding
from gateway.guards.pii import PiiEngine
from gateway.guards.sieve import Eye, Masks, Sieve
from tests.unit.guards.credentials import cases as credentials
from tests.unit.guards.pii import cases as pii
from tests.unit.guards.redaction import redact

CREDENTIALS = [
    *[key for keys in credentials.KEYS.values() for key in keys],
    *[text for text, _ in credentials.FOUND],
    *credentials.BENIGN,
]
PERSONAL = [*[text for text, _ in pii.FOUND], *pii.NEAR_MISSES, *pii.BENIGN]
FRONT, BACK = "Ini jawaban yang panjang sekali, silakan dibaca. " * 2, " Itu saja dari saya, terima kasih banyak." * 3


def streamed(engine: Engine, text: str, size: int) -> str:
    """What a client gets of *text*, of which *size* characters come at a time."""
    sieve = Sieve([Eye(engine, engine.threshold, None, "redact")], Masks({}))
    holding = Holding(sieve, engine.window_chars or 0, HOLD_CHARS, "content")
    return "".join(holding.feed(text[at : at + size]) for at in range(0, len(text), size)) + holding.flush()


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize(
    ("engine", "texts"), [(PiiEngine(), PERSONAL), (CredentialsEngine(), CREDENTIALS)], ids=["pii", "credentials"]
)
def test_the_same_as_at_once(engine: Engine, texts: list[str], size: int) -> None:
    """A stream that is held back as far as the engine declares is masked as the whole text is, and loses nothing."""
    for text in (surrounded for piece in texts for surrounded in (piece, f"{FRONT}{piece}{BACK}")):
        assert streamed(engine, text, size) == redact(engine, text)
