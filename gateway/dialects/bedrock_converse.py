"""Amazon Bedrock's Converse and ConverseStream, as a provider speaks them."""

from __future__ import annotations

from urllib.parse import quote

from gateway.dialects.base import Dialect
from gateway.dialects.bedrock_body import write_body
from gateway.dialects.bedrock_events import BedrockReader
from gateway.dialects.bedrock_failures import read_failure
from gateway.wire.eventstream import MEDIA_TYPE, MessageSplitter


def upstream_path(model: str, *, stream: bool) -> str:
    """
    The model goes into the path, whatever it is called by: an id, an inference profile, or an ARN with its colons and
    slashes. Nothing in its name can lead anywhere else.
    """
    return f"/model/{quote(model, safe='')}/{'converse-stream' if stream else 'converse'}"


BEDROCK_CONVERSE = Dialect(
    name="bedrock_converse",
    upstream_path=upstream_path,
    stream_type=MEDIA_TYPE,
    write_body=write_body,
    open_splitter=MessageSplitter,
    open_reader=lambda asked: BedrockReader(),
    read_failure=read_failure,
)
