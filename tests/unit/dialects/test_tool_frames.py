"""Calls of tools in the client's frames: what waits, what leaves, and what ends the stream."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.guarding import ArgumentRule, ToolTerms
from gateway.dialects.anthropic_tool_frames import AnthropicToolFrames
from gateway.dialects.openai_tool_frames import OpenAIToolFrames
from gateway.dialects.tool_frames import MAX_HELD_BYTES, ToolFrames
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, chunk, data, event
from tests.unit.dialects.conversations import choice_chunk

RULE = ArgumentRule("pay", "amount", maximum=100)
TERMS = ToolTerms((("read", "pay", "drop", "old"),), ("drop",), (RULE,))
ERROR = data({"error": {"code": "tool_denied"}})
AERROR = event("error", {"type": "error"})


def openai(terms: ToolTerms = TERMS) -> OpenAIToolFrames:
    return OpenAIToolFrames(terms)


def anthropic(terms: ToolTerms = TERMS) -> AnthropicToolFrames:
    return AnthropicToolFrames(terms)


def run(editor: ToolFrames, *frames: bytes) -> list[bytes]:
    """What leaves for each of *frames*, and what leaves at the end."""
    return [*(editor.feed(frame) for frame in frames), editor.end()]


def reason(editor: ToolFrames) -> str | None:
    return editor.failure and editor.failure.public_message


# -- chunks of chat completions --


def test_allowed_calls_pass_as_they_are() -> None:
    """A call's first chunk waits for the next of the same call, and all leave as the bytes that they were."""
    frames = [
        R(),
        T("Hi"),
        TC(0, name="read"),
        TC(0, '{"a"'),
        TC(0, ":1}"),
        TC(1, "{}", name="read"),
        FIN("tool_calls"),
    ]

    out = run(editor := openai(), *frames)

    assert out == [frames[0], frames[1], b"", frames[2] + frames[3], *frames[4:], b""]
    assert editor.failure is None


def test_a_denied_name() -> None:
    """Text goes on while a name is not whole; with the name the stream is over, and only its error leaves."""
    out = run(
        editor := openai(), R(), TC(0, name="drop"), T("Hi"), TC(0, "{"), T("more"), FIN("tool_calls"), ERROR + DONE
    )

    assert out == [R(), b"", T("Hi"), b"", b"", b"", ERROR + DONE, b""]
    assert reason(editor) == "The tool drop that the answer calls is not allowed: the policy denies its name."


def test_ruled_arguments() -> None:
    """They wait until they are whole, while text goes on, and leave as one chunk behind the call's first."""
    first, *pieces = TC(0, name="pay"), TC(0, '{"amo'), TC(0, 'unt":'), TC(0, "7}")

    out = run(editor := openai(), first, *pieces[:2], T("Hi"), pieces[2], FIN("tool_calls"))

    assert out == [b"", b"", b"", T("Hi"), first + TC(0, '{"amount":7}'), FIN("tool_calls"), b""]
    assert editor.failure is None


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (['{"amount":', "700}"], "its argument amount is more than the policy allows"),
        (['{"amount":7}', '{"amount":700}'], "its arguments go on behind their end"),
        (['{"amount":7', "1"], "its arguments are no JSON object that can be read in one way only"),
        (['{"amount":7,"amount":8}'], "its arguments are no JSON object that can be read in one way only"),
        (["700"], "its arguments are no JSON object that can be read in one way only"),
    ],
)
def test_denied_arguments(pieces: list[str], expected: str) -> None:
    """What is judged is what the client would take them for, up to the end of the choice."""
    run(editor := openai(), TC(0, name="pay"), *(TC(0, piece) for piece in pieces), FIN("tool_calls"))

    assert reason(editor) == f"The tool pay that the answer calls is not allowed: {expected}."


def test_no_arguments() -> None:
    """A call without any is judged as one with none, when its choice ends or the answer is complete."""
    required = ToolTerms(arguments=(ArgumentRule("pay", "amount", required=True),))

    assert run(openai(), TC(0, name="pay"), FIN()) == [b"", TC(0, name="pay") + FIN(), b""]
    assert run(openai(), TC(0, name="pay")) == [b"", TC(0, name="pay")]
    run(editor := openai(required), TC(0, name="pay"), FIN())
    assert editor.failure is not None


def test_parallel_calls() -> None:
    """They are judged one by one: what is allowed before a denied one has left, and so has text beside it."""
    both = {"tool_calls": [{"index": at, "id": f"c{at}", "function": {"name": name, "arguments": "{}"}}
                           for at, name in enumerate(("read", "drop"))]}  # fmt: skip
    frame = chunk({"content": "Hi", **both}, "tool_calls")

    (out, *_) = run(editor := openai(), frame)

    assert out == T("Hi") + chunk({"tool_calls": both["tool_calls"][:1]})
    assert editor.failure is not None


def test_calls_leave_in_their_order() -> None:
    """One that is allowed waits for a call before it: clients list them as they come."""
    frames = [TC(0, '{"amount":', name="pay"), TC(1, "{}", name="read"), TC(0, "7}"), TC(1, " ")]

    out = run(openai(), *frames)

    assert out == [b"", b"", frames[0] + frames[2] + frames[1], frames[3], b""]


def test_choices() -> None:
    """Each choice has calls of its own: one that waits stops no other, and one that is denied ends the stream."""
    call = {"index": 0, "function": {"name": "pay", "arguments": '{"amount":'}}
    waiting = choice_chunk(1, {"tool_calls": [call]})
    mixed = chunk({}, choices=[
        {"index": 0, "delta": {"content": "Hi"}, "finish_reason": None},
        {"index": 1, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "700}"}}]}, "finish_reason": None},
    ])  # fmt: skip

    out = run(editor := openai(), waiting, TC(0, "{}", name="read"), mixed)

    assert out[:2] == [b"", TC(0, "{}", name="read")]
    assert [choice["index"] for choice in json.loads(out[2][6:])["choices"]] == [0]
    assert editor.failure is not None


@pytest.mark.parametrize(
    ("names", "allowed"),
    [
        (["re", "ad"], True),
        (["read", "read", "read"], True),
        (["dr", "op"], False),
        (["read", "drop"], False),
        (["re", "drop"], False),
    ],
)
def test_names_in_pieces(names: list[str], allowed: bool) -> None:
    """A name may come in pieces, or with each of them; no piece may be a denied name by itself."""
    frames = [TC(0, name=name) for name in names]

    run(editor := openai(ToolTerms((("read", "redrop"),), ("drop",))), *frames, TC(0, "{}"))

    assert (editor.failure is None) is allowed


def test_a_name_that_changes() -> None:
    """Behind the beginning of its arguments a call has the name that was judged, and no other."""
    run(same := openai(), TC(0, "{", name="read"), TC(0, "}", name="read"))
    run(other := openai(), TC(0, "{", name="read"), TC(0, "}", name="pay"))

    assert same.failure is None
    assert reason(other) is not None


@pytest.mark.parametrize(
    ("delta", "allowed"),
    [
        ({"function_call": {"name": "old", "arguments": "{}"}}, True),
        ({"function_call": {"name": "drop", "arguments": "{}"}}, False),
        ({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "read", "input": "x"}}]}, True),
        ({"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "drop", "input": "x"}}]}, False),
        ({"tool_calls": [{"index": 0, "function": {"name": "read"}, "custom": {"name": "drop", "input": "x"}}]}, False),
        ({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, False),
        ({"tool_calls": [7]}, False),
    ],
)
def test_forms(delta: dict[str, Any], allowed: bool) -> None:
    """Old calls, calls with free text, and what cannot be read, which is denied."""
    frame = chunk(delta)

    out = run(editor := openai(), frame)

    assert (editor.failure is None) is allowed
    assert (b"".join(out) == frame) is allowed


def test_a_member_in_escapes() -> None:
    """A client reads an escaped name of a member as any other."""
    run(editor := openai(), TC(0, "{}", name="drop").replace(b"tool_calls", b"tool\\u005fcalls"))

    assert editor.failure is not None


def test_the_bound() -> None:
    """What waits is held up to a bound, and counts as denied beyond it."""
    big = TC(0, '{"x":"' + "x" * 9_000, name="pay")
    frames = [big.replace(b'"index":0,"id"', b'"index":%d,"id"' % at) for at in range(MAX_HELD_BYTES // 9_000 + 1)]

    run(editor := openai(), *frames)

    assert "too long to be judged" in (reason(editor) or "")


def test_no_more_is_held_than_is_said() -> None:
    """Thousands of pieces of one call wait as one."""
    frames = [TC(0, '{"amount":7,"x":"', name="pay"), *[TC(0, "x")] * 5_000, TC(0, '"}')]

    out = b"".join(run(openai(), *frames))

    assert joined(out)[1] == {(0, 0): ["pay", '{"amount":7,"x":"' + "x" * 5_000 + '"}']}
    assert len(out) < 6_000


def test_the_role_goes_on() -> None:
    """Of a chunk with a role and a call only the call waits."""
    call = [{"index": 0, "id": "c", "function": {"name": "pay", "arguments": '{"amount":'}}]
    frame = chunk({"role": "assistant", "content": None, "tool_calls": call})

    out = run(openai(), frame, TC(0, "7}"))

    assert json.loads(out[0][6:])["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert b'"c"' in out[1]


def joined(frames: bytes) -> tuple[dict[int, str], dict[tuple[int, int], list[str]]]:
    """Texts, and names and arguments of calls, as SDKs join them: calls of a choice in the order of their coming."""
    texts: dict[int, str] = {}
    calls: dict[tuple[int, int], list[str]] = {}
    for frame in frames.split(b"\n\n")[:-1]:
        for choice in json.loads(frame[6:])["choices"]:
            index = choice["index"]
            texts[index] = texts.get(index, "") + (choice["delta"].get("content") or "")
            for call in choice["delta"].get("tool_calls") or ():
                known = calls.setdefault((index, call["index"]), ["", ""])
                known[0] += call["function"].get("name") or ""
                known[1] += call["function"].get("arguments") or ""
    return texts, calls


CALLS = [
    ("read", '{"a":1}'),
    ("pay", '{"amount":7}'),
    ("pay", '{"amount": 700}'),
    ("drop", "{}"),
    ("pay", "{"),
    ("x", ""),
]


@st.composite
def streams(draw: st.DrawFn) -> list[bytes]:
    """Texts and calls of two choices, their pieces in any order, several in a chunk now and then."""
    pieces: list[tuple[int, list[dict[str, Any]]]] = []
    for choice in range(2):
        for at, (name, arguments) in enumerate(draw(st.lists(st.sampled_from(CALLS), max_size=3))):
            cuts = sorted(draw(st.sets(st.integers(1, max(1, len(arguments) - 1)), max_size=2)))
            parts = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, None], strict=True)]
            first = {"index": at, "id": f"c{at}", "function": {"name": name, "arguments": parts[0]}}
            rest = [{"index": at, "function": {"arguments": part}} for part in parts[1:]]
            pieces.append((choice, [{"tool_calls": [one]} for one in (first, *rest)]))
        pieces.append((choice, [{"content": word} for word in draw(st.lists(st.sampled_from("abc"), max_size=3))]))
    frames: list[bytes] = []
    while pieces := [(choice, left) for choice, left in pieces if left]:
        taken = draw(st.lists(st.integers(0, len(pieces) - 1), min_size=1, max_size=2, unique=True))
        deltas = [(pieces[at][0], pieces[at][1].pop(0)) for at in taken]
        choices = [{"index": choice, "delta": delta, "finish_reason": None} for choice, delta in deltas]
        if len(choices) == 2 and choices[0]["index"] == choices[1]["index"]:
            frames += [chunk({}, choices=[one]) for one in choices]
        else:
            frames.append(chunk({}, choices=choices))
    return [*frames, *(choice_chunk(at, {}, "tool_calls") for at in range(2))]


def is_allowed(name: str, arguments: str) -> bool:
    if name == "pay":
        return arguments == '{"amount":7}'
    return name == "read"


@pytest.mark.fuzz
@settings(deadline=None)
@given(streams())
def test_no_denied_call_leaves_and_nothing_else_is_lost(frames: list[bytes]) -> None:
    """A stream of allowed calls says what it said; of any other all text up to its end leaves, and no denied call."""
    texts, calls = joined(b"".join(frames))
    editor, heard, said = openai(), b"", 0
    for frame in [*frames, b""]:
        heard += editor.feed(frame) if frame else editor.end()
        said += editor.failure is None

    got_texts, got_calls = joined(heard)
    if all(is_allowed(*call) for call in calls.values()):
        assert (got_texts, got_calls, editor.failure) == (texts, calls, None)
        return
    assert editor.failure is not None
    assert all(is_allowed(name, "{}" if name == "read" else arguments) for name, arguments in got_calls.values())
    before, _ = joined(b"".join(frames[:said]))
    assert all(got_texts.get(index, "").startswith(text) for index, text in before.items())


@pytest.mark.fuzz
@settings(deadline=None)
@given(streams(), st.data())
def test_reads_do_not_matter(frames: list[bytes], data: st.DataObject) -> None:
    """However many frames come at a time, the client gets the same bytes."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(frames)))))
    one_by_one = b"".join(run(openai(), *frames, ERROR))
    in_pieces = [b"".join(frames[a:b]) for a, b in zip([0, *cuts], [*cuts, None], strict=True)]

    assert b"".join(run(openai(), *in_pieces, ERROR)) == one_by_one


# -- events of messages --


def use(index: int, name: str, **more: Any) -> bytes:
    return CBS(index, "tool_use", name=name, **more)


def test_allowed_blocks() -> None:
    """A block whose name is allowed and whose input is not ruled passes as it is, without waiting."""
    frames = [MS(7), CBS(0), CBD(0, "Hi"), CBX(0), use(1, "read"), CBJ(1, "{"), CBJ(1, "}"), CBX(1), MD("tool_use"), MX]

    assert run(anthropic(), *frames) == [*frames, b""]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"kind": "tool_use", "name": "drop"}, "The tool drop"),
        ({"kind": "server_tool_use", "name": "drop", "id": "s", "input": {}}, "The tool drop"),
        ({"kind": "mcp_tool_use", "name": "x", "server_name": "hub", "id": "m", "input": {}}, "The tool x"),
        ({"kind": "tool_use", "name": "pay", "input": {"amount": 700}}, "The tool pay"),
        ({"kind": "tool_use", "name": "a b"}, "A tool"),
        ({"kind": "tool_use", "name": None}, "A tool"),
    ],
)
def test_denied_blocks(block: dict[str, Any], expected: str) -> None:
    """With the start of a denied block the stream is over; the error names what looks like a name."""
    start = CBS(1, **block)

    out = run(editor := anthropic(), CBS(0), CBD(0, "Hi"), start, CBD(0, "more"), AERROR)

    assert out == [CBS(0), CBD(0, "Hi"), b"", b"", AERROR, b""]
    assert (reason(editor) or "").startswith(f"{expected} that the answer calls is not allowed: ")


def test_tools_of_servers() -> None:
    """They are known with their server's name too."""
    start = CBS(0, "mcp_tool_use", name="get", server_name="hub", id="m", input={})

    run(editor := anthropic(ToolTerms((("mcp__hub__*",),))), start)

    assert editor.failure is None


def test_ruled_input() -> None:
    """A block waits until its input is whole, and leaves with its input as one event."""
    frames = [use(0, "pay"), CBJ(0, ""), CBJ(0, '{"amount":'), CBJ(0, "7}"), CBX(0), MD("tool_use"), MX]

    out = run(editor := anthropic(), *frames)

    assert out[:3] == [b"", b"", b""]
    assert out[3] + out[4] == frames[0] + CBJ(0, '{"amount":7}') + CBX(0)
    assert editor.failure is None


@pytest.mark.parametrize("pieces", [['{"amount":700}'], ['{"amount":'], ['{"amount":7}', "0"], ["x"]])
def test_denied_input(pieces: list[str]) -> None:
    """The stream is over with the input, or with the end of a block whose input is not whole."""
    out = run(editor := anthropic(), use(0, "pay"), *(CBJ(0, piece) for piece in pieces), CBX(0), AERROR)

    assert b"".join(out).endswith(AERROR)
    assert b"700" not in b"".join(out)
    assert editor.failure is not None


def test_a_block_that_never_stops() -> None:
    """What is not whole at the end of the answer is denied."""
    run(editor := anthropic(), use(0, "pay"), CBJ(0, '{"amount":'))

    assert editor.failure is not None


def test_text_goes_on_past_a_block_that_waits() -> None:
    """It takes the index of the block that waits, since clients list blocks as they come; that gets the next one."""
    frames = [
        CBS(0),
        CBX(0),
        use(1, "pay"),
        CBS(2),
        CBD(2, "Hi"),
        CBX(2),
        CBJ(1, '{"amount":7}'),
        CBX(1),
        CBS(3),
        CBX(3),
    ]

    out = run(anthropic(), *frames)

    moved = use(2, "pay").replace(b"toolu_2", b"toolu_1")
    assert b"".join(out[2:6]) == CBS(1) + CBD(1, "Hi") + CBX(1)
    assert b"".join(out[6:]) == moved + CBJ(2, '{"amount":7}') + CBX(2) + CBS(3) + CBX(3)


def test_blocks_in_the_start_of_a_message() -> None:
    """Clients would take them from there, so they are judged there."""
    start = {"type": "message_start", "message": {"content": [{"type": "tool_use", "name": "drop", "input": {}}]}}

    run(editor := anthropic(), event("message_start", start))

    assert editor.failure is not None
