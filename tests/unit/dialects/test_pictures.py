"""Where the pictures of a call are, in either dialect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from gateway.core.catalog import ClientDialectName
from gateway.core.errors import GatewayError
from gateway.dialects.pictures import Picture, may_show
from gateway.dialects.registry import CLIENT_DIALECTS
from tests.support.pictures import image, image_url, linked

OPENAI: ClientDialectName = "openai_chat"
ANTHROPIC: ClientDialectName = "anthropic_messages"
TEXT = {"type": "text", "text": "an image"}
URL = "https://x.test/a.png"
PNG = b"\x89PNG"


def find(dialect: ClientDialectName, *messages: Any) -> list[Picture]:
    return CLIENT_DIALECTS[dialect].pictures.find(list(messages))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def test_openai_parts() -> None:
    """Parts are found in messages of every role, by URL, by data, and with the URL as a bare string."""
    tool = {
        "role": "tool",
        "tool_call_id": "c",
        "content": [TEXT, image_url("data:Image/PNG;name=a.png;base64,iVBORw==")],
    }
    file = {"type": "file", "file": {"file_data": "data:image/webp;base64,AAAA", "filename": "a"}}

    found = find(
        OPENAI,
        {"role": "system", "content": "image_url"},
        user(TEXT, image_url(URL)),
        tool,
        user(file),
        user({"type": "image_url", "image_url": URL}),
    )

    assert found == [
        Picture("messages[1].content[1].image_url.url", (1, "content", 1, "image_url", "url"), url=URL),
        Picture(
            "messages[2].content[1].image_url.url",
            (2, "content", 1, "image_url", "url"),
            media_type="image/png",
            data="iVBORw==",
        ),
        Picture(
            "messages[3].content[0].file.file_data",
            (3, "content", 0, "file", "file_data"),
            media_type="image/webp",
            data="AAAA",
        ),
        Picture("messages[4].content[0].image_url", (4, "content", 0, "image_url"), url=URL),
    ]


def test_what_an_assistant_drew() -> None:
    """Pictures in `images` of an assistant's message are found like those in its content; nobody else has any there."""
    drawn = [{**image_url(URL), "index": 0}, image_url("data:image/png;base64,iVBORw==")]

    found = find(
        OPENAI,
        {"role": "assistant", "content": "There.", "images": drawn},
        {"role": "assistant", "content": [TEXT, image_url(URL)], "images": None},
        {"role": "user", "content": "And now?", "images": drawn},
    )

    assert found == [
        Picture("messages[0].images[0].image_url.url", (0, "images", 0, "image_url", "url"), url=URL),
        Picture(
            "messages[0].images[1].image_url.url",
            (0, "images", 1, "image_url", "url"),
            media_type="image/png",
            data="iVBORw==",
        ),
        Picture("messages[1].content[1].image_url.url", (1, "content", 1, "image_url", "url"), url=URL),
    ]


def test_anthropic_blocks() -> None:
    """Blocks are found in turns, in results of tools and in documents; an uploaded file is one without content."""
    result = {"type": "tool_result", "tool_use_id": "c", "content": [TEXT, image(PNG, "image/PNG")]}
    document = {"type": "document", "source": {"type": "content", "content": [TEXT, linked(URL)]}}
    file = {"type": "image", "source": {"type": "file", "file_id": "f"}}

    found = find(ANTHROPIC, user(TEXT, result), {"role": "user", "content": "image"}, user(document), user(file))

    assert found == [
        Picture(
            "messages[0].content[1].content[1].source.data",
            (0, "content", 1, "content", 1, "source"),
            media_type="image/png",
            data="iVBORw==",
        ),
        Picture(
            "messages[2].content[0].source.content[1].source.url",
            (2, "content", 0, "source", "content", 1, "source"),
            url=URL,
        ),
        Picture("messages[3].content[0].source", (3, "content", 0, "source")),
    ]


@pytest.mark.parametrize(
    ("dialect", "content"),
    [
        (OPENAI, [{"type": "file", "file": {"file_id": "f"}}, {"type": "file"}]),
        (OPENAI, [{"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}]),
        (OPENAI, ["image_url", None, {"type": "input_audio"}, {"type": ["image_url"]}, TEXT]),
        (ANTHROPIC, [{"type": "document", "source": {"type": "base64", "data": "AAAA"}}, {"type": "document"}]),
        (ANTHROPIC, [{"type": "tool_result", "content": "image"}, {"type": "tool_result"}, "image", TEXT]),
    ],
)
def test_no_pictures(dialect: ClientDialectName, content: list[Any]) -> None:
    """Other files, and what is malformed elsewhere, are no pictures."""
    assert find(dialect, {"role": "user", "content": content}, {"role": "user"}, "image") == []


@pytest.mark.parametrize(
    ("dialect", "part", "place"),
    [
        (OPENAI, {"type": "image_url"}, "image_url"),
        (OPENAI, {"type": "image_url", "image_url": 7}, "image_url"),
        (OPENAI, {"type": "image_url", "image_url": {}}, "image_url.url"),
        (OPENAI, image_url(""), "image_url.url"),
        (OPENAI, image_url("file:///etc/passwd"), "image_url.url"),
        (OPENAI, image_url("ftp://x.test/a.png"), "image_url.url"),
        (OPENAI, image_url("data:image/png,AAAA"), "image_url.url"),
        (OPENAI, image_url("data:image/png;base64"), "image_url.url"),
        (ANTHROPIC, {"type": "image"}, "source"),
        (ANTHROPIC, {"type": "image", "source": "x"}, "source"),
        (ANTHROPIC, {"type": "image", "source": {"type": "url"}}, "source.url"),
        (ANTHROPIC, linked("http:/x"), "source.url"),
        (ANTHROPIC, linked("file:///etc/passwd"), "source.url"),
        (ANTHROPIC, {"type": "image", "source": {"type": "base64", "data": "AAAA"}}, "source.media_type"),
        (ANTHROPIC, {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "source.data"),
    ],
)
def test_no_picture_where_one_should_be(dialect: ClientDialectName, part: Any, place: str) -> None:
    """A part that says it is a picture and has none is a 400 that names the place."""
    with pytest.raises(GatewayError) as caught:
        find(dialect, user(TEXT, part))

    assert (caught.value.kind.status, caught.value.param) == (400, f"messages[0].content[1].{place}")


@pytest.mark.parametrize("part", [image_url(URL), image(PNG)])
def test_a_picture_cannot_pass_unseen(part: Any) -> None:
    """However the letters of its type are escaped, a call with a picture is looked at; one without is not."""
    text = json.dumps([user(part)])
    for letter in "image":
        escaped = text.replace(letter, f"\\u{ord(letter):04x}")

        assert may_show(Raw(escaped.encode()))
        assert may_show(Raw(escaped.replace("\\u006d", "\\u006D").encode()))
    assert not may_show(Raw(json.dumps([user({"type": "text", "text": "a picture \u00e9 \u4e00"})]).encode()))
