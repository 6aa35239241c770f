"""Where requests end in the bytes of a segment.

The parser does not tell, nor whether it is in the middle of the next head; the bytes do. All of it rests on one fact:
half a head holds no empty line, but for those in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp.http import RawRequestMessage
from aiohttp.streams import StreamReader

Request = tuple[RawRequestMessage, StreamReader]

TAIL_BYTES = 64  # of an unfinished chunked body: more than enough to find the end of its framing in

EMPTY_LINE = b"\r\n\r\n"
_LINE_ENDS = (b"\r", b"\n")


def behind_requests(held: bytes, requests: Sequence[Request]) -> bytes:
    """
    What is left of *held* behind *requests*, whose heads are in it and whose bodies as far as they have come.

    Requests that follow a chunked one in the same segment may be left over too: they would be waited for in vain.
    """
    end = 0
    for message, body in requests:
        if message.chunked:
            return behind_chunks(held, is_whole=body.is_eof())
        while held.startswith(_LINE_ENDS, end):
            end += 1  # RFC 9112, 2.2: empty lines before a request mean nothing
        end = held.find(EMPTY_LINE, end) + 4 + body.total_bytes  # the line itself, then the body
    return held[end:]


def behind_chunks(held: bytes, *, is_whole: bool) -> bytes:
    """What is left of *held* behind a chunked body that *is_whole*; of one that is not, what its end is found in."""
    if not is_whole:
        return held[-TAIL_BYTES:]
    _, line, rest = held.rpartition(EMPTY_LINE)
    return rest if line else held
