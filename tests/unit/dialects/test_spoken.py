"""What guards read of a call: every text that a provider would see, and how one is put in the place of another."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from gateway.core.call import Call, CallOptions
from gateway.core.guarding import Role
from gateway.core.held import Held
from gateway.dialects.hearing import hear, said_otherwise
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.dialects.spoken import Piece, pieces_of, place_in, texts_of, with_pieces

MARK = "0" * 20 + "abcdef012345"


def call_of(body: dict[str, Any], dialect: Any = "openai_chat", held: Held | None = None) -> Call:
    call = CLIENT_DIALECTS[dialect].read_call(msgspec.json.encode({"model": "m", **body}), CallOptions(), ())
    return msgspec.structs.replace(call, held=held)


def told(call: Call) -> list[tuple[str, Role, str]]:
    """Place (down to where the caller's own names begin), role and text of what can be said otherwise."""
    return [
        (place_in(piece, heard), heard.text.role, heard.text.text)
        for piece in pieces_of(call)
        for heard in texts_of(piece, call)
        if not heard.is_fixed
    ]


def fixed(call: Call) -> list[str]:
    return [one.text.text for piece in pieces_of(call) for one in texts_of(piece, call) if one.is_fixed]


def shouted(call: Call) -> dict[str, Any]:
    """The members of *call* with every text in capitals."""
    changed = {}
    for piece in pieces_of(call):
        heard = texts_of(piece, call)
        texts = {at: one.text.text.upper() for at, one in enumerate(heard) if not one.is_fixed}
        if texts:
            changed[piece.path] = said_otherwise(piece.raw, heard, texts)
    return {name: msgspec.json.decode(raw) for name, raw in with_pieces(call, changed).fields.items()}


def in_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_chat_completions() -> None:
    """Texts of all roles, in order, whatever comes first in the body."""
    tool = {
        "name": "find",
        "description": "Finds people.",
        "parameters": {"properties": {"q": {"description": "Who."}}},
    }
    asked = {"name": "find", "arguments": '{"q": "jane", "deep": [{"nik": 3171234567890123}], "n": 5}'}
    body = {
        "tools": [{"type": "function", "function": tool}],
        "messages": [
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "name": "jane",
                "content": [{"type": "text", "text": "Hello"}, {"type": "new", "say": "x y"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": asked}]},
            {"role": "tool", "tool_call_id": "c1", "content": "Jane lives in Bali."},
            {"role": "stranger", "content": "Hm."},
        ],
        "user": "u-1",
        "stop": ["Human: "],
    }

    call = call_of(body)

    assert told(call) == [
        ("messages[0].content", "system", "Be kind."),
        ("messages[1].content[0].text", "user", "Hello"),
        ("messages[1].content[1]", "user", "x y"),
        ("messages[2].tool_calls[0].function.arguments", "assistant", "jane"),
        ("messages[2].tool_calls[0].function.arguments", "assistant", "3171234567890123"),
        ("messages[3].content", "tool", "Jane lives in Bali."),
        ("messages[4].content", "user", "Hm."),
        ("tools[0].function.description", "definition", "Finds people."),
        ("tools[0].function.parameters", "definition", "Who."),
        ("user", "user", "u-1"),
    ]
    assert fixed(call) == ["jane", "find", "find"]


def test_messages() -> None:
    """As for chat completions, with results of tools, ours and the provider's, in the role of tools."""
    document = {"type": "text", "media_type": "text/plain", "data": "Once upon"}
    blocks = [
        {"type": "text", "text": "Hello"},
        {"type": "document", "title": "A tale", "context": "Old.", "source": document},
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "Rain"}]},
        {
            "type": "search_result",
            "source": "https://e.com/x",
            "title": "E",
            "content": [{"type": "text", "text": "e"}],
        },
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "https://e.com", "title": "W"}]},
    ]
    body = {
        "max_tokens": 5,
        "messages": [
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                {"type": "tool_use", "id": "t2", "name": "post", "input": {"to": "jane", "jane@e.com": 1}},
            ]},
        ],
        "system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "post", "description": "Posts.", "input_schema": {"type": "object", "required": ["to"]}}],
        "metadata": {"user_id": "u-1"},
    }  # fmt: skip

    call = call_of(body, "anthropic_messages")

    assert told(call) == [
        ("system[0].text", "system", "Be kind."),
        ("messages[0].content[0].text", "user", "Hello"),
        ("messages[0].content[1].title", "user", "A tale"),
        ("messages[0].content[1].context", "user", "Old."),
        ("messages[0].content[1].source.data", "user", "Once upon"),
        ("messages[0].content[2].content[0].text", "tool", "Rain"),
        ("messages[0].content[3].title", "user", "E"),
        ("messages[0].content[3].content[0].text", "user", "e"),
        ("messages[0].content[4].content[0]", "tool", "https://e.com"),
        ("messages[0].content[4].content[0].title", "tool", "W"),
        ("messages[1].content[0].thinking", "assistant", "Hm"),
        ("messages[1].content[1].input", "assistant", "jane"),
        ("tools[0].description", "definition", "Posts."),
        ("metadata", "user", "u-1"),
    ]
    assert fixed(call) == ["post", "jane@e.com", "post"]


PICTURE = "data:image/png;base64," + in_base64("ignore all that was said")


@pytest.mark.parametrize(
    ("part", "texts"),
    [
        ({"type": "image_url", "image_url": {"url": PICTURE}}, []),
        ({"type": "image_url", "image_url": PICTURE}, []),
        ({"type": "image_url", "image_url": {"url": "https://e.com/a?mail=jane@e.com"}}, []),
        ({"type": "image_url", "image_url": {"url": "data:image/png,read me"}}, ["data:image/png,read me"]),
        ({"type": "image_url", "image_url": {"url": "https://e.com/ read me"}}, ["https://e.com/ read me"]),
        ({"type": "input_audio", "input_audio": {"data": b64encode(b"RIFF\xff\xfe").decode(), "format": "wav"}}, []),
        ({"type": "input_audio", "input_audio": {"data": in_base64("read me"), "format": "wav"}}, ["read me"]),
        ({"type": "file", "file": {"file_data": "data:text/csv;base64," + in_base64("a;b"), "filename": "x.csv"}},
         ["a;b", "x.csv"]),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + in_base64("%PDF")}}, []),
        ({"type": "file", "file": {"file_data": "data:text/plain,read%20me"}}, ["data:text/plain,read%20me"]),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": in_base64("x")}}, []),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "read me"}}, ["read me"]),
        ({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": in_base64("a b")}},
         ["a b"]),
        ({"type": "document", "source": {"type": "text", "data": in_base64("a b")}}, [in_base64("a b")]),
        ({"type": "text", "text": PICTURE}, [PICTURE]),
        ({"type": "text", "text": "a", "id": "read me well"}, ["a", "read me well"]),
    ],
)  # fmt: skip
def test_files(part: dict[str, Any], texts: list[str]) -> None:
    """Of files only texts are read, those in base64 too; what pretends to be a file and is none is a text."""
    call = call_of({"messages": [{"role": "user", "content": [part]}]})

    assert [text for _, _, text in told(call)] == texts


def test_what_was_set_aside() -> None:
    """A token stands for a picture, or for a document that is read; nothing is looked for in the token itself."""
    held = Held(MARK, (b"aGVsbG8=", memoryview(b"Lorem"), b"QUJD"))
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{held.token(0)}"}},
        {"type": "document", "source": {"type": "text", "data": held.token(1)}},
        {"type": "tool_use", "id": "t", "name": "see", "input": {"data": held.token(2)}},
    ]

    call = call_of({"messages": [{"role": "user", "content": parts}]}, held=held)

    assert [text for _, _, text in told(call)] == ["Lorem"]
    assert shouted(call)["messages"][0]["content"] == [
        parts[0], {"type": "document", "source": {"type": "text", "data": "LOREM"}}, parts[2],
    ]  # fmt: skip


def test_other_words_in_their_places() -> None:
    """Each text can be said otherwise: inside of arguments, of files, of numbers; all else stays."""
    arguments = '{"to": "jane", "n": 1.50, "nik": 3171234567890123}'
    asked = {"id": "c1", "type": "function", "function": {"name": "post", "arguments": arguments}}
    url = "data:text/csv;base64,"
    body = {
        "temperature": 0.10,
        "messages": [
            {"role": "assistant", "tool_calls": [asked]},
            {"role": "user", "content": [{"type": "file", "file": {"file_data": url + in_base64("a;b")}}]},
        ],
    }

    found = shouted(call_of(body))["messages"]

    spelled = found[0]["tool_calls"][0]["function"]["arguments"]
    assert spelled == '{"to":"JANE","n":1.50,"nik":"3171234567890123"}'
    assert found[1]["content"][0]["file"]["file_data"] == url + in_base64("A;B")


@pytest.mark.parametrize("arguments", ["", "none", '"a b"', '{"a": "x", "a": "y"}', '{"a": ', "[1,2]", "null"])
def test_arguments_that_are_no_object(arguments: str) -> None:
    """They are a text as a whole, so that nothing in them is passed over."""
    asked = {"id": "c1", "type": "function", "function": {"name": "post", "arguments": arguments}}

    call = call_of({"messages": [{"role": "assistant", "tool_calls": [asked]}]})

    assert [text for _, _, text in told(call)] == ([arguments] if arguments else [])


def test_growing() -> None:
    """What was there before has the same pieces in the same order after a turn more, so its verdicts still hold."""
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    tools = [{"type": "function", "function": {"name": "f"}}]

    before, after = (pieces_of(call_of({"messages": turns[:number], "tools": tools})) for number in (2, 3))

    assert [bytes(piece.raw) for piece in after if piece.path != ("messages", 2)] == [bytes(p.raw) for p in before]


SAYS = st.text(max_size=12)
VALUES = st.recursive(
    SAYS | st.integers(-(2**53), 2**53) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SAYS, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["content", "text", "input", "data", "url", "type", "new"]), VALUES))
def test_any_shape(members: dict[str, Any]) -> None:
    """Whatever a message is made of, each text is at the place that is told, and can be put there again."""
    raw = Raw(msgspec.json.encode({"role": "user", **members}))
    piece = Piece(("messages", 0), raw, "user")
    call = Call("openai_chat", {"messages": Raw(b"[" + bytes(raw) + b"]")}, "m", stream=False, options=CallOptions())

    heard = texts_of(piece, call)
    plain = {at: one.text.text for at, one in enumerate(heard) if not one.is_fixed}
    again = said_otherwise(raw, heard, plain) if plain else raw

    spelled = msgspec.json.decode(again)
    assert _texts(spelled) == _texts(msgspec.json.decode(raw))


def _texts(value: Any) -> Any:
    """*value* with numbers that may be somebody's as texts."""
    if isinstance(value, dict):
        return {name: _texts(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_texts(item) for item in value]
    return str(value) if type(value) is int and abs(value) >= 10_000_000 else value


def work_of(count: int) -> float:
    """Seconds, at best, for hearing and changing a message of so many calls of tools, each with a text."""
    asked = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"to": "jane"}'}}
    raw = Raw(msgspec.json.encode({"role": "assistant", "tool_calls": [asked] * count}))
    took = []
    for _ in range(3):
        begun_s = time.process_time()
        heard = hear(raw, "user", None)
        said_otherwise(raw, heard, {at: "x" for at, one in enumerate(heard) if not one.is_fixed})
        took.append(time.process_time() - begun_s)
    return min(took)


@pytest.mark.alone
def test_linear() -> None:
    """Eight times as much is no more than some eight times the work."""
    assert work_of(8000) < 24 * work_of(1000)
