"""A provider's whole JSON answer, read once."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.core.errors import UpstreamFailed
from gateway.dialects.failures import malformed
from gateway.wire.ascii import mend_json

_members = msgspec.json.Decoder(dict[str, Raw])
_decode = msgspec.json.decode


def read_answer(body: bytes) -> tuple[dict[str, Raw], dict[str, Any]]:
    """
    *body* as its members untouched and as values; what can be mended (lone surrogates, controls) is.

    Raises:
        UpstreamFailed: It is no JSON object.
    """
    try:
        root = _decode(body)
    except (msgspec.DecodeError, RecursionError):
        mended = mend_json(body)
        if mended is None:
            raise UpstreamFailed(malformed(body[:500].decode("utf-8", "replace"))) from None
        body = mended
        root = _decode(body)
    if not isinstance(root, dict):
        raise UpstreamFailed(malformed("the answer is no object"))
    return _members.decode(body), root
