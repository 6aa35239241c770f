"""The seam of a continued answer: what the client has heard, and how more of it is said."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.anthropic_seam import AnthropicSeam
from gateway.dialects.openai_seam import OpenAISeam
from gateway.dialects.seam import MAX_TOLD_CHARS, Joint, Seam
from tests.support.frames import named, text_of
from tests.support.notation import CBD, CBJ, CBS, CBX, DONE, FIN, MD, MS, MX, TC, R, T, chunk, data, event

OPENAI_TOLD = R() + T("Once ") + T("upon")
ANTHROPIC_TOLD = MS(7) + CBS(0) + CBD(0, "Once ") + CBD(0, "upon")
OTHER = {"id": "c2", "created": 9}
EVENTS = (
    None, "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "x",
)  # fmt: skip
MEMBERS = (
    "choices", "delta", "content", "text", "type", "index", "content_block", "id", "finish_reason", "usage", "object",
)  # fmt: skip


def told(*frames: bytes, echoes: bool = False) -> OpenAISeam:
    seam = OpenAISeam()
    for each in frames:
        seam.hear(each)
    seam.resume(echoes)
    return seam


def block_told(*frames: bytes) -> AnthropicSeam:
    seam = AnthropicSeam()
    for each in frames:
        seam.hear(each)
    seam.resume(echoes=False)
    return seam


def split(frames: bytes) -> list[tuple[str, Any]]:
    return named([each for each in frames.split(b"\n\n") if each])


# -- what may be continued --


@pytest.mark.parametrize(
    ("seam", "frames"),
    [
        pytest.param(OpenAISeam, OPENAI_TOLD, id="chat"),
        pytest.param(AnthropicSeam, ANTHROPIC_TOLD, id="messages"),
        pytest.param(OpenAISeam, OPENAI_TOLD + b": ping\n\n" + chunk({"tool_calls": None}), id="nothing"),
    ],
)
def test_text(seam: type[Seam], frames: bytes) -> None:
    """Plain text may be continued, and is kept as it was heard."""
    one = seam()

    one.hear(frames)

    assert (one.is_open, one.text) == (True, "Once upon")


@pytest.mark.parametrize(
    ("seam", "frames"),
    [
        pytest.param(OpenAISeam, R(), id="nothing said"),
        pytest.param(OpenAISeam, R() + T(" \n"), id="blanks only"),
        pytest.param(OpenAISeam, OPENAI_TOLD + TC(0, "{", name="f"), id="tool"),
        pytest.param(OpenAISeam, chunk({"reasoning_content": "hm"}) + OPENAI_TOLD, id="reasoning"),
        pytest.param(OpenAISeam, OPENAI_TOLD + chunk({"refusal": "no"}), id="refusal"),
        pytest.param(OpenAISeam, OPENAI_TOLD + chunk({"content": [{"type": "text"}]}), id="parts"),
        pytest.param(OpenAISeam, OPENAI_TOLD + FIN(), id="finish"),
        pytest.param(OpenAISeam, data({"choices": [{"index": 1, "delta": {"content": "b"}}]}), id="second choice"),
        pytest.param(OpenAISeam, data({"choices": [{"delta": {"content": "b"}, "logprobs": {"a": 1}}]}), id="logprobs"),
        pytest.param(OpenAISeam, T("a" * (MAX_TOLD_CHARS + 1)), id="too long"),
        pytest.param(AnthropicSeam, MS(7) + CBS(0), id="empty block"),
        pytest.param(AnthropicSeam, ANTHROPIC_TOLD + CBX(0), id="closed block"),
        pytest.param(AnthropicSeam, ANTHROPIC_TOLD + CBX(0) + CBS(1, "tool_use"), id="tool_use"),
        pytest.param(AnthropicSeam, MS(7) + CBS(0, "thinking") + CBX(0) + CBS(1) + CBD(1, "a"), id="thinking"),
        pytest.param(AnthropicSeam, ANTHROPIC_TOLD + CBJ(0, "{"), id="odd delta"),
        pytest.param(AnthropicSeam, ANTHROPIC_TOLD + CBD(0, ["a"]), id="text that is none"),  # type: ignore[arg-type]
    ],
)
def test_no_text(seam: type[Seam], frames: bytes) -> None:
    """Whatever else was heard, or nothing yet, or an end, is a reason not to go on."""
    one = seam()

    one.hear(frames)

    assert not one.is_open


# -- how it goes on --


def test_chat() -> None:
    """More chunks of the first's id and time, no second role, nothing empty; the end as it was written."""
    seam = told(OPENAI_TOLD)

    role = R().replace(b'"c1"', b'"c2"')
    more = seam.join(role + chunk({"content": " a"}, **OTHER) + chunk({}, "stop", (7, 4)) + DONE)

    said = split(more)
    assert [payload["id"] for _, payload in said[:-1]] == ["c1", "c1"]
    assert [payload["created"] for _, payload in said[:-1]] == [1, 1]
    assert [payload["choices"][0]["delta"] for _, payload in said[:-1]] == [{"content": " a"}, {}]
    assert said[1][1]["usage"]["completion_tokens"] == 4
    assert said[-1][1] == "[DONE]"


def test_chat_frames_of_ours() -> None:
    """The metadata frame gets the first's id and keeps its empty delta; an error frame stays as it is to the letter."""
    seam = told(OPENAI_TOLD)
    metadata = data({"_anoman": {}, **OTHER, "object": "anoman.metadata", "choices": [{"index": 0, "delta": {}}]})
    error = data({"error": {"type": "provider_error", "code": "stream_interrupted"}})

    assert split(seam.join(metadata))[0][1]["id"] == "c1"
    assert seam.join(error) == error


def test_messages() -> None:
    """The text goes on in the block that is open; a further block is counted on from it; one start of the message."""
    seam = block_told(MS(7) + CBS(3) + CBD(3, "Once"))

    more = seam.join(MS(9) + CBS(0) + CBD(0, " more") + CBX(0) + CBS(1) + CBD(1, "!") + CBX(1) + MD() + MX)

    assert more == CBD(3, " more") + CBX(3) + CBS(4) + CBD(4, "!") + CBX(4) + MD() + MX


def test_messages_that_go_on_with_something_else() -> None:
    """The open block is closed before a block of another kind begins."""
    seam = block_told(ANTHROPIC_TOLD)

    more = seam.join(MS(9) + CBS(0, "tool_use") + CBJ(0, "{}") + CBX(0) + CBS(1) + CBX(1) + MD("tool_use") + MX)

    start = CBS(1, "tool_use").replace(b"toolu_1", b"toolu_0")
    assert more == CBX(0) + start + CBJ(1, "{}") + CBX(1) + CBS(2) + CBX(2) + MD("tool_use") + MX


def test_messages_that_add_nothing() -> None:
    """The open block is closed before the end."""
    seam = block_told(ANTHROPIC_TOLD)

    assert seam.join(MS(9) + MD() + MX) == CBX(0) + MD() + MX


# -- the text at the seam --


def joined(told_text: str, pieces: list[str], *, echoes: bool) -> str:
    given = told_text.rstrip()
    joint = Joint(given if echoes else "", told_text[len(given) :])
    return "".join(joint.take(piece) for piece in pieces) + joint.rest()


@pytest.mark.parametrize(
    ("told_text", "second", "echoes", "expected"),
    [
        ("Once ", " upon", False, "upon"),
        ("Once ", "upon", False, "upon"),
        ("a\n\n", "\nb", False, "b"),
        ("a\n\n", "\n\n\nb", False, "\nb"),
        ("ha", "ha", False, "ha"),
        ("Once", "Once upon", True, " upon"),
        ("Once ", "Once upon", True, "upon"),
        ("Once", " upon", True, " upon"),
        ("Once", "On the way", True, "On the way"),
        ("Once", "Onc", True, "Onc"),
        ("Once", "Once", True, ""),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_joint(told_text: str, second: str, echoes: bool, expected: str, size: int) -> None:
    """What the client has heard is not said again, however the second part is cut; what only begins alike is kept."""
    pieces = [second[at : at + size] for at in range(0, len(second), size)]

    assert joined(told_text, pieces, echoes=echoes) == expected


@given(st.text("ab \n", min_size=1), st.text("ab \n"), st.lists(st.integers(0, 20)))
def test_an_echo_is_never_doubled(told_text: str, rest: str, cuts: list[int]) -> None:
    """For every text and every chunking the two parts are the text and its rest, but for blanks at the seam."""
    second, places = told_text.rstrip() + rest, [0, *sorted(cuts), 10_000]
    pieces = [second[a:b] for a, b in pairwise(places)]

    whole = told_text + joined(told_text, pieces, echoes=True)

    if told_text.strip():
        assert whole.split() == (told_text.rstrip() + told_text[len(told_text.rstrip()) :] + rest).split()


def test_held_text_is_not_lost() -> None:
    """A second part that ends while it still looks like an echo is said before the end, in both dialects."""
    chat, messages = told(OPENAI_TOLD, echoes=True), AnthropicSeam()
    messages.hear(ANTHROPIC_TOLD)
    messages.resume(echoes=True)

    one = chat.join(T("Once") + FIN() + DONE)
    two = messages.join(MS(9) + CBS(0) + CBD(0, "Once") + CBX(0) + MD() + MX)

    assert text_of([each for each in one.split(b"\n\n") if each]) == "Once"
    assert two == CBD(0, "Once") + CBX(0) + MD() + MX


_VALUES = st.recursive(
    st.none() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.sampled_from(("a", "text_delta")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), _VALUES), max_size=6), st.sampled_from([OpenAISeam, AnthropicSeam]))
def test_strangers_members(events: list[tuple[str | None, Any]], kind: type[Seam]) -> None:
    """Whatever shapes a provider's members have, neither part raises, and every frame that leaves is whole."""
    frames = b"".join(data(value) if name is None else event(name, value) for name, value in events)
    seam = kind()

    seam.hear(frames)
    assert seam.is_open in (True, False)
    seam.resume(echoes=True)
    out = seam.join(frames)

    assert out == b"" or out.endswith(b"\n\n")
    assert all(b"data: " in each for each in out.split(b"\n\n")[:-1])
