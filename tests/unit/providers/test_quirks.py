"""What is done to bodies for vendors that lack a part of OpenAI's dialect, and that nothing else is done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gateway.core.call import CallOptions
from gateway.core.catalog import Quirk
from gateway.core.held import Held
from gateway.dialects.neutral import Notes
from gateway.dialects.openai_chat import read_call
from gateway.providers.quirks import fold_max_completion_tokens, system_for_developer, text_as_string
from gateway.wire.values import decode_members
from tests.support.scale import examples

ALL = (text_as_string, fold_max_completion_tokens, system_for_developer)
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def text(words: object, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def members(body: str | dict[str, Any]) -> Mapping[str, Raw]:
    """The members of a body that has passed the endpoint's checks."""
    raw = body if isinstance(body, str) else json.dumps(body)
    return read_call(raw.encode(), CallOptions(), ()).fields


def asked(*messages: dict[str, Any], **more: Any) -> Mapping[str, Raw]:
    return members({"model": "m", "messages": messages, **more})


def said(fields: Mapping[str, Raw]) -> Any:
    return {name: json.loads(bytes(raw)) for name, raw in fields.items()}


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function", "x"])
def test_parts_become_lines(role: str) -> None:
    """TR-15: a list of texts is one string with all of them, whoever says it; its place is among the translated."""
    notes = Notes()

    out = text_as_string(asked({"role": role, "content": [text("a"), text(""), text('é"\\\n')], "name": "n"}), notes)

    assert said(out)["messages"] == [{"role": role, "content": 'a\né"\\\n', "name": "n"}]
    assert (notes.translated, notes.dropped) == (["messages[0].content"], [])


@pytest.mark.parametrize(
    "content",
    [
        None, "a", "", "[", [], [IMAGE], [text("a"), IMAGE], [text(1)], [text(None)], [{"type": "text"}], ["a"], [None],
        [[text("a")]], [text("a"), "b"], {"type": "text", "text": "a"}, 7, [{"text": "a"}],
        [{"type": None, "text": "a"}], [{"type": ["text"], "text": "a"}], [{"type": "refusal", "refusal": "no"}],
        [text(["a"])], [text({})],
    ],
)  # fmt: skip
def test_what_is_not_text_stays(content: object) -> None:
    """A content that is no list, or a list of anything but texts, is left alone, and so is the whole call."""
    fields, notes = asked({"role": "user", "content": content}), Notes()

    out = text_as_string(fields, notes)

    assert out is fields
    assert (notes.translated, notes.dropped) == ([], [])


def test_odd_spelling() -> None:
    """Names and values are known in every spelling that JSON has for them."""
    fields = members(
        '{"model":"m","messages" : [ {"r\\u006fle" :"develope\\u0072","c\\u006fntent" :\n[ {"t\\u0079pe":"te\\u0078t", '
        '"text" :"\\u00e9"} ] , "z":1.50 } ]}'
    )

    out = system_for_developer(text_as_string(fields, Notes()), Notes())

    assert bytes(out["messages"]) == '[{"role":"system","content":"é","z":1.50}]'.encode()


def test_what_a_string_has_no_place_for() -> None:
    """Whatever else a part of text has is dropped, and said to be; null says nothing."""
    notes = Notes()
    parts = [text("a"), text("b", cache_control={"type": "ephemeral"}, annotations=None), text("c", x=1)]

    out = text_as_string(asked({"role": "user", "content": "-"}, {"role": "user", "content": parts}), notes)

    assert said(out)["messages"][1] == {"role": "user", "content": "a\nb\nc"}
    assert notes.dropped == ["messages[1].content[1].cache_control", "messages[1].content[2].x"]


def test_developers() -> None:
    """Messages of the developer are the system's, wherever they stand; nothing else of them changes."""
    notes = Notes()
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "developer"}, {"role": "user", "content": "developer", "name": "developer"},
        {"role": "developer", "content": [text("a")], "name": "n"},
    ]  # fmt: skip

    out = system_for_developer(asked(*messages), notes)

    assert said(out)["messages"] == [messages[0] | {"role": "system"}, messages[1], messages[2] | {"role": "system"}]
    assert notes.translated == ["messages[0].role", "messages[2].role"]


@pytest.mark.parametrize(
    ("limits", "expected", "noted"),
    [
        ({"max_completion_tokens": 50}, {"max_tokens": 50}, True),
        ({"max_completion_tokens": 50, "max_tokens": 20}, {"max_tokens": 20}, True),
        ({"max_tokens": 70, "max_completion_tokens": 50}, {"max_tokens": 50}, True),
        ({"max_tokens": None, "max_completion_tokens": 50}, {"max_tokens": 50}, True),
        ({"max_completion_tokens": None}, {}, False),
        ({"max_completion_tokens": None, "max_tokens": 7}, {"max_tokens": 7}, False),
        ({"max_tokens": 7}, {"max_tokens": 7}, False),
        ({"max_tokens": None}, {"max_tokens": None}, False),
        ({}, {}, False),
    ],
)
def test_limits(limits: dict[str, Any], expected: dict[str, Any], noted: bool) -> None:
    """TR-22: the newer name of the limit becomes the older one, the smaller of two counts."""
    notes = Notes()

    out = fold_max_completion_tokens(asked({"role": "user", "content": "Hi"}, **limits), notes)

    assert {name: value for name, value in said(out).items() if name.startswith("max_")} == expected
    assert notes.translated == (["max_completion_tokens"] if noted else [])


def test_pictures_beside_the_body() -> None:
    """The tokens that stand for long pictures are in their places afterwards, and are filled as before."""
    held, token = Held("f" * 32).keep(b"AAAA")
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{token}"}}
    fields = asked({"role": "user", "content": [text("a"), picture]}, {"role": "user", "content": [text(token)]})

    out = text_as_string(fields, Notes())

    filled = json.loads(held.fill(bytes(out["messages"])))
    assert filled[0]["content"][1]["image_url"] == {"url": "data:image/png;base64,AAAA"}
    assert filled[1]["content"] == "AAAA"


_words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
_odd = st.none() | st.integers(0, 9) | _words | st.lists(_words, max_size=2)
_parts = st.fixed_dictionaries({"type": st.just("text"), "text": _words}) | st.just(IMAGE) | st.builds(text, _odd)
_contents = st.none() | _words | st.lists(_parts | _odd, max_size=4) | st.lists(st.builds(text, _words), max_size=4)
_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["developer", "system", "user", "assistant", "tool"]) | _words.filter(bool)},
    optional={
        "content": _contents,
        "tool_calls": _odd,
        "name": _odd,
        "x": st.floats(allow_nan=False, allow_infinity=False, width=32),
    },
)
_limits = st.none() | st.integers(1, 10_000_000)
_bodies = st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(_messages, min_size=1, max_size=4)},
    optional={"max_tokens": _limits, "max_completion_tokens": _limits, "x": _odd},
)


@given(_bodies, st.permutations(ALL), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_nothing_else_changes(body: dict[str, Any], quirks: Sequence[Quirk], spaced: bool) -> None:
    """Any call, quirks in any order: done twice they do no more, texts stay, and all other bytes are the client's."""
    fields = members(json.dumps(body, separators=(" , ", " : ") if spaced else None))
    notes, again = Notes(), Notes()
    out = fields
    for quirk in quirks:
        out = quirk(out, notes)

    twice = out
    for quirk in quirks:
        twice = quirk(twice, again)

    assert twice is out
    assert again.translated == again.dropped == []
    limits = {"max_tokens", "max_completion_tokens", "messages"}
    assert {k: bytes(v) for k, v in out.items() if k not in limits} == {
        k: bytes(v) for k, v in fields.items() if k not in limits
    }
    pairs = zip(*(msgspec.json.decode(it["messages"], type=list[Raw]) for it in (fields, out)), strict=True)
    for at, (before, after) in enumerate(pairs):
        _check(at, before, after, notes)


def _check(at: int, before: Raw, after: Raw, notes: Notes) -> None:
    """A message keeps its bytes, or the members that are noted say the same in another form."""
    changed = {name for name in ("role", "content") if f"messages[{at}].{name}" in notes.translated}
    if not changed:
        assert bytes(before) == bytes(after)
        return
    old, new = decode_members(before), decode_members(after)
    assert list(old) == list(new)
    assert {name: bytes(old[name]) for name in old if name not in changed} == {
        name: bytes(new[name]) for name in new if name not in changed
    }
    if "content" in changed:
        lines = [part["text"] for part in json.loads(bytes(old["content"]))]
        assert json.loads(bytes(new["content"])) == "\n".join(filter(None, lines))
    if "role" in changed:
        assert (bytes(old["role"]), bytes(new["role"])) == (b'"developer"', b'"system"')
