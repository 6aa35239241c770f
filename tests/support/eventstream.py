"""Messages of AWS's binary event stream, written by the specification and by nothing of the gateway's."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

CONTENT_TYPE = "application/vnd.amazon.eventstream"


@dataclass(frozen=True, slots=True)
class Typed:
    """A header's value with the number of its type, and as its bytes on the wire."""

    kind: int
    raw: bytes


def text(value: str) -> Typed:
    """A string: type 7."""
    raw = value.encode()
    return Typed(7, struct.pack(">H", len(raw)) + raw)


def message(headers: Mapping[str, str | Typed], payload: bytes) -> bytes:
    """A whole message; a plain string among *headers* is of type 7."""
    block = b""
    for name, value in headers.items():
        typed = text(value) if isinstance(value, str) else value
        block += bytes([len(name.encode())]) + name.encode() + bytes([typed.kind]) + typed.raw
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    head = prelude + struct.pack(">I", zlib.crc32(prelude)) + block + payload
    return head + struct.pack(">I", zlib.crc32(head))


def event(name: str, body: Any) -> bytes:
    """An event of a service that speaks JSON, with the headers that Bedrock sends."""
    headers = {":event-type": name, ":content-type": "application/json", ":message-type": "event"}
    return message(headers, json.dumps(body, separators=(",", ":")).encode())


def exception(name: str, body: Any) -> bytes:
    """An exception in the middle of a stream."""
    headers = {":exception-type": name, ":content-type": "application/json", ":message-type": "exception"}
    return message(headers, json.dumps(body, separators=(",", ":")).encode())


def error(code: str, words: str) -> bytes:
    """An error of the service's frame: it has no payload."""
    return message({":message-type": "error", ":error-code": code, ":error-message": words}, b"")
