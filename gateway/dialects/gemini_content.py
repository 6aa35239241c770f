"""Gemini's own API, `generateContent` and `streamGenerateContent`, as Google documents it; spoken by providers only."""

from __future__ import annotations

import re
from urllib.parse import quote

from gateway.dialects.base import Dialect
from gateway.dialects.gemini_body import write_body
from gateway.dialects.gemini_events import GeminiReader
from gateway.dialects.gemini_failures import read_gemini_failure
from gateway.wire.sse import FrameSplitter

# A picture is one event, in base64. The largest that a model gives has 4,096 x 4,096 pixels: some 10 MB as PNG.
MAX_PICTURE_EVENT_BYTES = 24 * 1024 * 1024


def upstream_path(model: str, *, stream: bool) -> str:
    """The method on *model*, whose name may begin with `models/` as in Google's lists."""
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return f"/models/{quote(model.removeprefix('models/'), safe='')}:{method}"


def open_splitter(max_event_bytes: int) -> FrameSplitter:
    """Events as long as pictures are, whatever is enough for those of other dialects."""
    return FrameSplitter(max(max_event_bytes, MAX_PICTURE_EVENT_BYTES))


GEMINI_CONTENT = Dialect(
    name="gemini_content",
    upstream_path=upstream_path,
    write_body=write_body,
    open_splitter=open_splitter,
    open_reader=GeminiReader,
    tool_names=re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),  # the API's own refusal of others
    read_failure=read_gemini_failure,
)
