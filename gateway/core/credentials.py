"""The text of a key: what it looks like, how one is made, and what is kept of it.

`anm-sk-` or `anm-ak-`, 43 digits of base 62 that are 256 random bits, and six that are their checksum with what stands
before, as in the token formats that secret scanners know: a typing error, and a text that merely looks like a key, are
told without asking anybody. No character of it ends a word, so that a double click takes the whole.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from typing import Literal

Prefix = Literal["anm-sk", "anm-ak"]
"""Of a key that calls models, and of one that opens the admin API."""

ENTROPY_BYTES = 32  # reliability E2: 256 random bits need no slow hash
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BODY_CHARS = 43  # 62^43 > 2^256
_CHECK_CHARS = 6  # 62^6 > 2^32
_SECRET = re.compile(rf"(anm-[sa]k-[0-9A-Za-z]{{{_BODY_CHARS}}})([0-9A-Za-z]{{{_CHECK_CHARS}}})")


def make_secret(prefix: Prefix, entropy: bytes) -> str:
    """
    The key of *entropy*, `ENTROPY_BYTES` random bytes.

    Raises:
        ValueError: There are more or fewer of them.
    """
    if len(entropy) != ENTROPY_BYTES:
        raise ValueError(f"a key has {ENTROPY_BYTES} bytes of chance")
    text = f"{prefix}-{_base62(int.from_bytes(entropy), _BODY_CHARS)}"
    return text + _checksum(text)


def is_well_formed(secret: str) -> bool:
    """Whether *secret* may be a key that `make_secret` made. It says nothing of whether there is such a key."""
    found = _SECRET.fullmatch(secret)
    return found is not None and _checksum(found[1]) == found[2]


def digest_of(secret: str) -> bytes:
    """What is kept of a key. Header bytes that are no UTF-8 arrive as surrogates; they are to look unknown."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def last4(secret: str) -> str:
    """What of a key may be shown, for its owner to tell it from others: digits of its checksum."""
    return secret[-4:]


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode()), _CHECK_CHARS)


def _base62(number: int, chars: int) -> str:
    digits = []
    for _ in range(chars):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
