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


PNG = b64encode(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR ignore all that was said").decode()
PDF = b64encode(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\0\xff").decode()
PICTURE = "data:image/png;base64," + PNG
HEADED = "data:;" + "x" * 600 + ";base64,"
SHEET = "data:application/vnd.ms-excel;base64,"
TABLE = "nik,name of the one"


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
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64," + PDF}}, []),
        ({"type": "file", "file": {"file_data": "data:text/plain,read%20me"}}, ["data:text/plain,read%20me"]),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, []),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "read me"}}, ["read me"]),
        ({"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": in_base64("a b")}},
         ["a b"]),
        ({"type": "document", "source": {"type": "text", "data": in_base64("a b")}}, [in_base64("a b")]),
        ({"type": "text", "text": PICTURE}, [PICTURE]),
        ({"type": "image_url", "image_url": "data:image/png;base64," + in_base64("read me")}, ["read me"]),
        ({"type": "file", "file": {"file_data": SHEET + in_base64(TABLE)}}, [TABLE]),
        ({"type": "file", "file": {"file_data": SHEET + in_base64("read me").rstrip("=")}}, ["read me"]),
        ({"type": "file", "file": {"file_data": SHEET + "cmVhZCBtZT8-"}}, ["read me?>"]),
        ({"type": "file", "file": {"file_data": HEADED + in_base64("read me")}}, ["read me"]),
        ({"type": "text", "text": "a", "source": "jane@e.com"}, ["a", "jane@e.com"]),
        ({"type": "jane@e.com", "text": "a"}, ["jane@e.com", "a"]),
        ({"type": "form", "nik": 3171234567890123}, ["3171234567890123"]),
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "5m"}}, ["a"]),
        ({"type": "text", "text": "a", "cache_control": {"note": "jane@e.com"}}, ["a", "jane@e.com"]),
        ({"type": "text", "text": "a", "id": "read me well"}, ["a", "read me well"]),
    ],
)  # fmt: skip
def test_files(part: dict[str, Any], texts: list[str]) -> None:
    """Of files only texts are read, those in base64 too; what pretends to be a file and is none is a text."""
    call = call_of({"messages": [{"role": "user", "content": [part]}]})

    assert [text for _, _, text in told(call)] == texts


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_files_in_other_encodings(encoding: str) -> None:
    """They are read, and nothing can stand in the place of what is found there: their label would not fit any more."""
    url = "data:text/plain;base64," + b64encode("mail: jos\xe9, jane@e.com".encode(encoding)).decode()
    call = call_of({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_data": url}}]}]})

    assert told(call) == []
    assert fixed(call) == ["mail: jos\xe9, jane@e.com"]


def test_escapes_of_what_says_a_thing_twice() -> None:
    """Arguments that are no proper JSON are read as they stand, and as who reads them all the same would."""
    spelled = '{"a": "jane\\u0040e.com", "a": "\\ud83d\\ude00"}'
    asked = {"id": "c", "type": "function", "function": {"name": "f", "arguments": spelled}}
    call = call_of({"messages": [{"role": "assistant", "tool_calls": [asked]}]})

    assert [text for _, _, text in told(call)] == [spelled]
    assert fixed(call) == ["f", '{"a": "jane@e.com", "a": "\U0001f600"}']


def test_percent_signs_of_a_data_url() -> None:
    """Text in a data URL is read as it stands, and as what it means."""
    call = call_of({"messages": [{"role": "user", "content": [{"type": "x", "source": "data:,jane%40e.com"}]}]})

    assert (told(call)[0][2], fixed(call)) == ("data:,jane%40e.com", ["jane@e.com"])


@pytest.mark.parametrize("literal", ["3171234567890123.0", "3.171234567890123e15", "31.71234567890123E14"])
@pytest.mark.parametrize("place", ["arguments", "input", "nik", "metadata"])
def test_numbers(literal: str, place: str) -> None:
    """A long number is read wherever it stands and however it is spelled."""
    object_ = f'{{"n": {literal}}}'
    value = msgspec.json.encode(object_).decode() if place == "arguments" else literal if place == "nik" else object_
    body = f'{{"messages": [{{"role": "user", "content": [{{"{place}": {value}}}]}}]}}'

    call = Call("openai_chat", msgspec.json.decode(body, type=dict[str, Raw]), "m", stream=False, options=CallOptions())

    assert [text for _, _, text in told(call)] == ["3171234567890123"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["jane@e.com"]),
        ("stop", "3171234567890123"),
        ("service_tier", "jane@e.com"),
        ("reasoning", {"note": "jane@e.com"}),
        ("logit_bias", {"3171234567890123": 1}),
        ("include", ["a name"]),
        ("nik", 3171234567890123),
        ("metadata", {"id": "3171234567890123"}),
        ("metadata", {"jane@e.com": "x"}),
        ("extra", {"jane@e.com": 1}),
        ("extra", {"type": "3171234567890123", "source": "jane@e.com"}),
    ],
)
def test_what_has_not_the_form_of_its_member(name: str, value: Any) -> None:
    """It is read, though members of that name hold no text."""
    call = Call("openai_chat", {name: Raw(msgspec.json.encode(value))}, "m", stream=False, options=CallOptions())

    heard = " ".join([*(text for _, _, text in told(call)), *fixed(call)])

    assert any(one in heard for one in ("jane@e.com", "3171234567890123", "a name"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["\n\nHuman:", "<|im_end|>", "### Instruction:"]),
        ("service_tier", "auto"),
        ("thinking", {"type": "enabled", "budget_tokens": 10_000}),
        ("logit_bias", {"50256": -100}),
        ("betas", ["fine-grained-tool-streaming-2025-05-14"]),
        ("tool_choice", {"type": "function", "function": {"name": "find"}}),
        ("stream_options", {"include_usage": True}),
        ("seed", 3171234567890123),
        ("temperature", 0.7),
    ],
)
def test_words_of_the_api(name: str, value: Any) -> None:
    """What has the form of its member costs nobody a look."""
    call = Call("openai_chat", {name: Raw(msgspec.json.encode(value))}, "m", stream=False, options=CallOptions())

    assert pieces_of(call) == []


def test_what_was_set_aside() -> None:
    """A token stands for a picture, or for a document that is read; nothing is looked for in the token itself."""
    held = Held(MARK, (PNG.encode(), memoryview(b"Lorem"), b"QUJD"))
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
