"""Answers under guards, in both dialects: the same bytes for all reads, texts under masks, all else untouched."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.catalog import ClientDialectName
from gateway.core.errors import CONTENT_CUT, GUARDS_CUT
from gateway.core.guarding import AnswerTerms, GuardMode
from gateway.dialects.base import Lane
from gateway.dialects.edited import TEXT_EDITORS, EditedLane, unedited
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.guards.screen import Screen
from gateway.guards.sieve import make_eyes
from tests.support.guards import Faulty, Spotter
from tests.support.notation import (
    CBD,
    CBJ,
    CBS,
    CBX,
    DONE,
    FIN,
    MD,
    MS,
    MX,
    PING,
    TC,
    R,
    T,
    U,
    chunk,
    event,
    json_answer,
)
from tests.support.scale import examples
from tests.unit.dialects.conversations import (
    RESET,
    Heard,
    anthropic,
    anthropic_call,
    check_anthropic,
    check_openai,
    choice_chunk,
    hear,
    journey,
    openai,
    openai_call,
    shape,
)
from tests.unit.dialects.streams import SLOW, Said, anthropic_streams, cut_lists, openai_streams, pieces
from tests.unit.dialects.translated import to_chat, to_messages
from tests.unit.guards.test_holding import NIK, PARTS, masked
from tests.unit.receipts import receipt

MAIL = ["mail jane.", "doe@exam", "ple.com now"]


def screen(mode: GuardMode = "redact", originals: dict[str, str] | None = None, *engines: Spotter) -> Screen:
    return Screen(make_eyes(engines or [Spotter()], mode, {}), AnswerTerms(mode), originals or {})


def edited(lane: Lane, one: Screen, client: ClientDialectName = "openai_chat") -> EditedLane:
    return EditedLane(lane, (TEXT_EDITORS[client](one),))


def said(heard: Heard) -> dict[str, str]:
    """Each text that the client has, whatever its frames: by its choice or block, and its name."""
    out: dict[str, str] = {}

    def add(key: str, text: object) -> None:
        if isinstance(text, str):
            out[key] = out.get(key, "") + text

    for item in heard.items:
        if not isinstance(item, dict):
            continue
        for choice in item.get("choices", ()):
            for name, value in choice["delta"].items():
                add(f"{choice['index']}.{name}", value if name != "role" else None)
            for call in choice["delta"].get("tool_calls") or ():
                add(f"{choice['index']}.{call['index']}", call["function"].get("arguments"))
        for name in ("text", "thinking", "partial_json"):
            if item.get("type") == "content_block_delta":
                add(f"{item['index']}.{name}", item["delta"].get(name))
    return {key: text for key, text in out.items() if text}


# -- whatever the provider says, and however it comes --

NAMES = ("content", "reasoning_content", "refusal")


@st.composite
def choices(draw: st.DrawFn) -> list[bytes]:
    """Chunks of one or two choices with values in any pieces, texts in turns, calls of tools."""
    count = draw(st.sampled_from([1, 1, 2]))
    out = []
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)):
        said_of = draw(st.lists(st.tuples(st.integers(0, count - 1), st.sampled_from(PARTS)), max_size=12))
        out += [choice_chunk(index, {name: piece}) for index, piece in said_of]
    if draw(st.booleans()):
        words = json.dumps({"a": "".join(draw(st.lists(st.sampled_from(PARTS), max_size=5)))})
        size = draw(st.integers(1, 30))
        out.append(TC(0, name="f"))
        out += [TC(0, words[at : at + size]) for at in range(0, len(words), size)]
    ends = [
        choice_chunk(index, draw(st.sampled_from([{}, {"content": " kim@x.id"}])), "stop") for index in range(count)
    ]
    return [*out, *ends, U(7, 3), DONE]


@st.composite
def blocks(draw: st.DrawFn) -> list[bytes]:
    """Blocks of text, thoughts and arguments, with values in any pieces."""
    out = [MS(7)]
    for index in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "thinking", "tool_use"]))
        parts = draw(st.lists(st.sampled_from(PARTS), max_size=12))
        out.append(CBS(index, kind))
        if kind == "tool_use":
            words = json.dumps({"a": "".join(parts)})
            out += [CBJ(index, words[at : at + 7]) for at in range(0, len(words), 7)]
        elif kind == "text":
            out += [CBD(index, part) for part in parts]
        else:
            delta = {"type": "content_block_delta", "index": index}
            said = [{**delta, "delta": {"type": "thinking_delta", "thinking": part}} for part in parts]
            out += [event("content_block_delta", one) for one in said]
        out += [PING, CBX(index)]
    return [*out, MD(usage=3), MX]


def expected(heard: Heard) -> dict[str, str]:
    """What a client may see of what it would have heard without guards; numbers of masks left out."""
    return {key: unnumbered(masked(text)) for key, text in said(heard).items()}


def unnumbered(text: str) -> str:
    return re.sub(r"(EMAIL|CARD|KEY|VIOLENCE)_\d+\]", r"\1]", text)


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(events=choices(), partitions=cut_lists, asked=st.sampled_from([1, 2]))
def test_openai_texts(events: list[bytes], partitions: list[list[int]], asked: int) -> None:
    """Every text of every choice leaves as it would from a whole answer; the bytes are the same for all reads."""
    stream = b"".join(events)
    plain = hear(openai(n=asked), [stream])
    whole = hear(edited(openai(n=asked), screen()), [stream])

    check_openai(whole)
    wanted = {key: text for key, text in expected(plain).items() if not key.endswith(".0")}
    assert wanted == {key: unnumbered(text) for key, text in said(whole).items() if not key.endswith(".0")}
    assert all(json.loads(text) for key, text in said(whole).items() if key.endswith(".0"))
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        assert hear(edited(openai(n=asked), screen()), parts).out == whole.out


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(events=blocks(), partitions=cut_lists)
def test_anthropic_texts(events: list[bytes], partitions: list[list[int]]) -> None:
    """Every text of every block leaves as it would from a whole answer; the bytes are the same for all reads."""
    stream = b"".join(events)
    plain = hear(anthropic(), [stream])
    whole = hear(edited(anthropic(), screen(), "anthropic_messages"), [stream])

    check_anthropic(whole)
    texts_of = {key: unnumbered(text) for key, text in said(whole).items() if "json" not in key}
    assert {key: text for key, text in expected(plain).items() if "json" not in key} == texts_of
    assert all(json.loads(text) for key, text in said(whole).items() if "json" in key)
    assert [item["type"] for item in plain.items if "delta" not in item["type"]] == [
        item["type"] for item in whole.items if "delta" not in item["type"]
    ]
    for parts in [*(pieces(stream, cuts) for cuts in partitions), pieces(stream, [*range(len(stream))])]:
        assert hear(edited(anthropic(), screen(), "anthropic_messages"), parts).out == whole.out


@pytest.mark.fuzz
@pytest.mark.timeout(1800)
@settings(max_examples=examples(100), deadline=None, suppress_health_check=SLOW)
@given(stream=openai_streams() | st.none(), other=anthropic_streams(), mode=st.sampled_from(["monitor", "redact"]))
def test_any_provider(stream: list[Said] | None, other: list[Said], mode: GuardMode) -> None:
    """
    An honest provider or not, in which nothing is found: the client has the same answer as without guards; of one that
    breaks, under masks, all but what could have been half a value.
    """
    is_chat = stream is not None
    reads = [one.raw for one in (stream or other)]
    plain = hear(openai() if is_chat else anthropic(), reads)
    if plain.end == "refused":
        return
    lane = openai() if is_chat else anthropic()
    heard = hear(edited(lane, screen(mode), "openai_chat" if is_chat else "anthropic_messages"), reads)

    assert plain.end == heard.end
    if heard.end == "finished" or mode == "monitor":
        assert said(plain) == said(heard)
    assert all(said(plain)[key].startswith(text) for key, text in said(heard).items())
    (check_openai if is_chat else check_anthropic)(heard)


# -- what becomes of one frame --


def test_split_value() -> None:
    """GRD-05: an address in three pieces is masked as one, and the client never has a half of it."""
    heard = hear(edited(openai(), screen()), [R(), *map(T, MAIL), FIN("stop", (7, 3)), DONE])

    check_openai(heard)
    assert shape(heard) == ["0:R", "0:mail [EMAIL_1] now", "0:FIN(stop)", "META", "[DONE]"]


def test_stop() -> None:
    """What stands in front of a finding leaves, then the typed frame of its dialect, and the end; no finish."""
    for lane, client, reads in (
        (openai(), "openai_chat", [R(), *map(T, MAIL), FIN("stop", (7, 3)), DONE]),
        (anthropic(), "anthropic_messages", [MS(7), CBS(0), *(CBD(0, one) for one in MAIL), CBX(0), MD(), MX]),
    ):
        one = edited(lane, screen("block"), client)  # type: ignore[arg-type]  # a dialect
        heard = hear(one, reads)
        error = next(item["error"] for item in heard.items if isinstance(item, dict) and "error" in item)
        assert (one.failure, one.complete, heard.end) == (CONTENT_CUT, False, "interrupted")
        assert (error["code"], error["_anoman"]["failure_class"]) == ("content_violation", "policy_stop")
        assert list(said(heard).values()) == ["mail "]
        assert b'finish_reason":"' not in heard.out
        assert b"message_stop" not in heard.out


def test_stop_in_between() -> None:
    """Nothing that came with what ends an answer, or behind it, is heard of."""
    lane = edited(openai(n=2), screen("block"))
    text = "so it is " * 30

    out = lane.feed(R() + T(f"Hi kim@x.id {text}") + T("more") + choice_chunk(1, {"content": text}))

    assert b"more" not in out
    assert lane.failure is CONTENT_CUT


def test_engine_fails() -> None:
    """Where a guard that has to be passed fails, the answer ends with an error that says so; else it goes on."""
    for mode, failure in (("block", GUARDS_CUT), ("redact", GUARDS_CUT), ("monitor", None)):
        lane = edited(openai(), screen(mode, None, Faulty()))  # type: ignore[arg-type]  # a mode
        heard = hear(lane, [R(), *map(T, MAIL), FIN("stop", (7, 3)), DONE])
        assert (lane.failure, "mail" in json.dumps(heard.items)) == (failure, mode == "monitor")


def test_monitor() -> None:
    """What is only watched leaves with every byte as it was, and is told of."""
    reads = [R(), *map(T, MAIL), FIN("stop", (7, 3)), DONE]
    one = screen("monitor")

    assert hear(edited(openai(), one), reads).out == hear(openai(), reads).out
    assert (one.verdict().status, one.verdict().findings) == ("flag", {"email": 1})


def test_interrupted() -> None:
    """An answer that breaks ends with what could leave by then: what may be half a value does not."""
    heard = hear(edited(openai(), screen()), [R(), T("so mail jane.doe@exam")], RESET)
    assert said(heard) == {"0.content": "so mail "}

    heard = hear(
        edited(anthropic(), screen(), "anthropic_messages"), [MS(7), CBS(0), CBD(0, "so mail jane.doe@ex")], RESET
    )
    assert said(heard) == {"0.text": "so mail "}


def test_turns() -> None:
    """A text leaves to its end before another one begins, or a tool is called; arguments may come in turns."""
    thought = choice_chunk(0, {"reasoning_content": "kim@x.id or so"})
    calls = [TC(0, '{"a":"jane@', name="f"), TC(1, '{"a":"kim@', name="g"), TC(0, 'x.id"}'), TC(1, 'x.id"}')]
    heard = hear(edited(openai(), screen()), [R(), thought, T("Hi jane@x.id"), *calls, FIN("tool_calls", (7, 3)), DONE])

    check_openai(heard)
    kinds = [next(iter(item["choices"][0]["delta"]), "") for item in heard.items[:-2]]
    assert kinds == ["role", "reasoning_content", "content", *["tool_calls"] * 4, ""]
    assert said(heard) == {
        "0.reasoning_content": "[EMAIL_1] or so",
        "0.content": "Hi [EMAIL_2]",
        "0.0": '{"a":"[EMAIL_2]"}',
        "0.1": '{"a":"[EMAIL_1]"}',
    }


def test_originals() -> None:
    """Placeholders of the call become what they stood for, in texts and, as JSON spells it, in arguments."""
    calls = [TC(0, '{"a":"[NIK', name="f"), TC(0, '_12]"}')]
    lane = edited(openai(), Screen((), AnswerTerms(), NIK))
    heard = hear(lane, [R(), T("of [NI"), T("K_1]!"), *calls, FIN("tool_calls", (7, 3)), DONE])

    check_openai(heard)
    assert said(heard)["0.content"] == f"of {NIK['[NIK_1]']}!"
    assert json.loads(said(heard)["0.0"]) == {"a": NIK["[NIK_12]"]}


def test_quiet() -> None:
    """A silence lets whole words go, in a frame of the same envelope; only one such time for what came before it."""
    for lane, client, begun, wanted in (
        (openai(), "openai_chat", [R(), T("Well, mail jane.doe@ex")], "0.content"),
        (anthropic(), "anthropic_messages", [MS(7), CBS(0), CBD(0, "Well, mail jane.doe@ex")], "0.text"),
    ):
        editor = TEXT_EDITORS[client](screen())  # type: ignore[index]  # a dialect
        one = EditedLane(lane, (editor,))
        out = b"".join(map(one.feed, begun))
        assert editor.is_restless
        eased = editor.ease()
        assert said(Heard(eased, "finished", lane)) == {wanted: "Well, mail "}
        assert not editor.is_restless
        assert editor.ease() == b""
        assert unedited(one) is lane
        assert out


def test_other_members() -> None:
    """Members that nobody here knows stay with their frame; probabilities of tokens leave out what they would tell."""
    delta = {"content": "kim@x.id or not", "y": [1]}
    choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": {"content": [1]}}
    odd = chunk({}, x=1.50, choices=[choice])
    heard = hear(edited(openai(), screen()), [R(), odd, FIN("stop", (7, 3)), DONE])

    assert b'"x":1.5' in heard.out
    assert b'"y":[1]' in heard.out
    assert heard.items[1]["choices"][0]["logprobs"] is None
    assert said(heard)["0.content"] == "[EMAIL_1] or not"


def test_found_texts() -> None:
    """What tools of a server have found, and what citations cite, is looked at as a whole."""
    found = {"type": "web_search_result", "title": "of kim@x.id", "url": "https://x.id", "encrypted_content": "a@b.id"}
    cited = {"type": "char_location", "cited_text": "kim@x.id", "document_title": "T"}
    delta = {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": cited}}
    reads = [
        MS(7), CBS(0, "web_search_tool_result", tool_use_id="t", content=[found]), CBX(0),
        CBS(1), CBD(1, "Hi"), event("content_block_delta", delta), CBX(1), MD(), MX,
    ]  # fmt: skip
    heard = hear(edited(anthropic(), screen(), "anthropic_messages"), reads)

    check_anthropic(heard)
    assert heard.items[1]["content_block"]["content"] == [{**found, "title": "of [EMAIL_1]"}]
    assert heard.items[4]["delta"]["citation"] == {**cited, "cited_text": "[EMAIL_1]"}


def test_translated() -> None:
    """Translated answers pass the same way; what a translation holds back to the end is looked at before it is over."""
    texts_of = [R(), *map(T, MAIL), FIN("stop", (7, 3)), DONE]
    heard = hear(edited(to_messages(), screen(), "anthropic_messages"), texts_of)
    check_anthropic(heard)
    assert said(heard) == {"0.text": "mail [EMAIL_1] now"}

    heard = hear(edited(to_chat(), screen()), [MS(7), CBS(0), *(CBD(0, one) for one in MAIL), CBX(0), MD(), MX])
    check_openai(heard)
    assert said(heard) == {"0.content": "mail [EMAIL_1] now"}


def test_finish_with_text() -> None:
    """A text in the very chunk that finishes is looked at before the answer is settled."""
    reads = [R(), T("Hi "), choice_chunk(0, {"content": "kim@x.id"}, "stop"), U(7, 3), DONE]
    lane = edited(openai(), screen("block"))
    stopped = hear(lane, reads)
    assert (lane.failure, said(stopped)) == (CONTENT_CUT, {"0.content": "Hi "})

    heard = hear(edited(openai(), screen()), reads)
    check_openai(heard)
    assert (said(heard), heard.end) == ({"0.content": "Hi [EMAIL_1]"}, "finished")


# -- whole answers --


def test_whole_openai() -> None:
    """Every text of a JSON answer passes: parts, thoughts, refusals, arguments; the rest stays as it was."""
    message = {
        "role": "assistant", "content": "Hi kim@x.id", "reasoning_content": "of kim@x.id", "refusal": None, "x": 1.50,
        "reasoning_details": [{"type": "reasoning.text", "text": "kim@x.id", "signature": "kim@x.id"}],
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":"kim@x.id","n":4111111111111111}'}}],
        "audio": {"id": "a", "data": "AAAA", "transcript": "kim@x.id"}, "function_call": {"arguments": '"kim@x.id"'},
    }  # fmt: skip
    parts = [{"type": "text", "text": "a@b.id"}, {"type": "thinking", "thinking": [{"type": "text", "text": "a@b.id"}]}]
    choices = [
        {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": []}},
        {"index": 1, "message": {"role": "assistant", "content": parts}, "finish_reason": "stop"},
    ]
    body = whole("openai_chat", {"choices": choices}, screen())

    first, second = (choice["message"] for choice in body["choices"])
    assert (first["content"], first["reasoning_content"], first["x"]) == ("Hi [EMAIL_1]", "of [EMAIL_1]", 1.5)
    assert first["reasoning_details"] == [{"type": "reasoning.text", "text": "[EMAIL_1]", "signature": "kim@x.id"}]
    assert first["tool_calls"][0]["function"]["arguments"] == '{"a":"[EMAIL_1]","n":"[CARD_1]"}'
    assert first["audio"] == {"id": "a", "data": "AAAA", "transcript": "[EMAIL_1]"}
    assert first["function_call"] == {"arguments": '"[EMAIL_1]"'}
    assert [second["content"][0]["text"], second["content"][1]["thinking"][0]["text"]] == ["[EMAIL_2]"] * 2


def test_whole_anthropic() -> None:
    """Every text of a JSON answer passes: texts, thoughts, inputs, what was found; the rest stays as it was."""
    content = [
        {"type": "thinking", "thinking": "of kim@x.id", "signature": "kim@x.id"},
        {"type": "text", "text": "Hi kim@x.id", "citations": [{"type": "page", "cited_text": "kim@x.id", "page": 1}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": ["kim@x.id", 1.5], "n": 4111111111111111}},
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "kim@x.id"}]},
    ]
    body = whole("anthropic_messages", {"content": content}, screen())

    assert body["content"] == [
        {"type": "thinking", "thinking": "of [EMAIL_1]", "signature": "kim@x.id"},
        {"type": "text", "text": "Hi [EMAIL_1]", "citations": [{"type": "page", "cited_text": "[EMAIL_1]", "page": 1}]},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": ["[EMAIL_1]", 1.5], "n": "[CARD_1]"}},
        {"type": "mcp_tool_result", "content": [{"type": "text", "text": "[EMAIL_1]"}]},
    ]


@pytest.mark.parametrize("client", ["openai_chat", "anthropic_messages"])
def test_whole_untouched(client: ClientDialectName) -> None:
    """Nothing is found, or is only watched: the body is that without guards. A finding that blocks is told of."""
    for text, mode in (("Hi", "redact"), ("Hi kim@x.id", "monitor")):
        assert whole(client, {}, screen(mode), text) == whole(client, {}, None, text)  # type: ignore[arg-type]  # a mode
    one = screen("block")
    whole(client, {}, one, "Hi kim@x.id")

    assert (one.stopped, one.verdict().findings) == (True, {"email": 1})


def whole(client: ClientDialectName, more: dict[str, Any], one: Screen | None, text: str = "Hi") -> Any:
    call = openai_call(stream=False) if client == "openai_chat" else anthropic_call(stream=False)
    answer = json_answer(text, dialect="openai" if client == "openai_chat" else "anthropic", **more)
    completion = CLIENT_DIALECTS[client].read_completion(answer.body, journey(call))
    if one is not None:
        completion.pass_through(one)
    return json.loads(completion.render(receipt()))
