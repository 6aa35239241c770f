"""A provider's whole JSON answer, read once."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.dialects.failures import malformed
from gateway.wire.ascii import mend_json
from gateway.wire.body import MAX_DEPTH, nested_deeper, structural
from gateway.wire.values import decode_members, decode_values

# Braces, brackets, commas and colons outside strings. 3,600 tokens with 20 alternatives each have a million. Decoding
# the worst of a million holds the loop for 0.2 s; 15 MB of `[]` (15 million) took 3.2 s and 0.5 GB.
MAX_ANSWER_STRUCTURAL = 1_000_000



def read_answer(body: bytes) -> tuple[dict[str, Raw], dict[str, Any]]:
    """
    *body* as its members untouched and as values; what can be mended (lone surrogates, controls) is.

    Raises:
        UpstreamFailed: It is no JSON object, or has more elements or levels than an answer can need.
    """
    if structural(body, MAX_ANSWER_STRUCTURAL) > MAX_ANSWER_STRUCTURAL:
        raise UpstreamFailed(malformed("too many JSON elements in the answer"))
    if nested_deeper(body, MAX_DEPTH):
        raise UpstreamFailed(malformed("the answer is nested too deeply"))
    try:
        root = decode_values(body)
    except msgspec.DecodeError:
        body, root = _mended(body)
    if not isinstance(root, dict):
        raise UpstreamFailed(malformed("the answer is no object"))
    return decode_members(body), root


def _mended(body: bytes) -> tuple[bytes, Any]:
    mended = mend_json(body)
    if mended is None:
        raise UpstreamFailed(malformed(body[:500].decode("utf-8", "replace")))
    return mended, decode_values(mended)
