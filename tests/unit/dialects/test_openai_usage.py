"""Usage and tool calls on the OpenAI lane: counted once, whole before the finish."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.usage import Usage
from tests.support.notation import DONE, FIN, TC, R, T, U, chunk, data
from tests.unit.dialects.conversations import (
    OURS,
    choice_chunk,
    finish_of,
    hear_openai,
    shape,
)

# -- usage --

FIRST = chunk({"role": "assistant", "content": ""}, None, (7, 1))

ENDINGS = {
    "on the finish chunk": ([FIN("stop", (7, 3)), DONE], Usage(7, 3), "provider_final"),
    "after the finish chunk": ([FIN("stop"), U(7, 3), DONE], Usage(7, 3), "provider_final"),
    "before the finish chunk": ([U(7, 3), FIN("stop"), DONE], Usage(7, 3), "provider_final"),
    "twice": ([FIN("stop", (7, 2)), U(7, 3), DONE], Usage(7, 3), "provider_final"),
    "without terminator": ([FIN("stop"), U(7, 3)], Usage(7, 3), "provider_final"),
    "details only later": (
        [FIN("stop", (7, 3)), U(7, 3, prompt_tokens_details={"cached_tokens": 4}), DONE],
        Usage(7, 3, cached_tokens=4),
        "provider_final",
    ),
    "with what was written to the cache": (
        [FIN("stop"), U(7, 3, prompt_tokens_details={"cached_tokens": 2, "cache_write_tokens": 4}), DONE],
        Usage(7, 3, cached_tokens=2, cache_write_tokens=4),
        "provider_final",
    ),
    "behind filter results": (
        [FIN("stop", (7, 1)), data({"choices": [], "prompt_filter_results": []}), U(7, 3)],
        Usage(7, 3),
        "provider_final",
    ),
    "null at first": (
        [FIN("stop", None), data({"choices": [], "usage": None}), U(7, 3)],
        Usage(7, 3),
        "provider_final",
    ),
    "never": ([FIN("stop"), DONE], Usage(OURS, 2), "estimated"),
    "only the prompt": ([FIN("stop", {"prompt_tokens": 7}), DONE], Usage(7, 2), "estimated"),
    "only the completion": ([FIN("stop", {"completion_tokens": 9}), DONE], Usage(OURS, 9), "estimated"),
    "a placeholder up front": ([FIN("stop", (7, 0)), DONE], Usage(7, 2), "estimated"),
    "after the terminator": ([FIN("stop"), DONE, U(7, 3)], Usage(OURS, 2), "estimated"),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "usage", "basis"), ENDINGS.values(), ids=ENDINGS)
def test_where_usage_can_be(ending: list[bytes], usage: Usage, basis: str) -> None:
    """Wherever a provider puts its usage, the client finds it once, on the finish chunk; ours fills what is missing."""
    heard = hear_openai(R(), T("a"), T("b"), *ending)

    assert (usage, basis) == heard.lane.measure()
    assert finish_of(heard)["usage"]["prompt_tokens"] == usage.prompt_tokens
    assert finish_of(heard)["usage"]["completion_tokens"] == usage.completion_tokens


def test_use_04_cumulative_usage_on_every_chunk() -> None:
    """Usage on every chunk is cumulative, not to be added up."""
    heard = hear_openai(R(), T("a", (7, 1)), T("b", (7, 2)), T("c", (7, 3)), FIN("stop", (7, 3)), DONE)

    assert heard.lane.measure() == (Usage(7, 3), "provider_final")


@pytest.mark.parametrize(
    "before",
    [[FIRST], [R(), T("a"), U(7, 1)], [R(), T("a"), FIN("stop", (7, 1))]],
    ids=["on the first chunk", "in the middle", "with a finish that was none"],
)
def test_a_count_that_text_has_followed(before: list[bytes]) -> None:
    """It is not the answer's: ours is, unless the provider counts again."""
    more = [T("b"), T("c"), T("d")]

    heard, counted = hear_openai(*before, *more, FIN(), DONE), hear_openai(*before, *more, FIN(), U(7, 9), DONE)

    assert heard.lane.measure()[1] == "estimated"
    assert heard.lane.measure()[0].completion_tokens >= 3
    assert counted.lane.measure() == (Usage(7, 9), "provider_final")


def test_a_broken_stream_counts_what_came() -> None:
    """The error frame and the books agree; a running count of the provider's is taken where it is ahead."""
    plain = hear_openai(R(), T("a"), T("b"))
    counted = hear_openai(R(), T("a", (7, 1)), T("b", (7, 5)))
    behind = hear_openai(R(), T("a", (7, 1)), T("b"))

    assert shape(plain)[-2:] == ["ERRF(2, upstream_truncated)", "[DONE]"]
    assert plain.lane.measure() == (Usage(OURS, 2), "estimated")
    assert counted.lane.measure() == (Usage(7, 5), "received")
    assert behind.lane.measure() == (Usage(7, 2), "estimated")


@pytest.mark.parametrize(
    "said",
    [
        {"prompt_tokens": -5, "completion_tokens": "12", "total_tokens": 9 * 10**12},
        {"prompt_tokens": 10**12, "completion_tokens": 1.5},
        {"prompt_tokens": True, "completion_tokens": [], "x": 10**40},
        [1, 2],
        "many",
    ],
)
def test_use_15_absurd_usage(said: Any) -> None:
    """Counts that cannot be counts are ignored and remarked upon; ours take their place."""
    heard = hear_openai(R(), T("a"), chunk({}, "stop", None, usage=said), DONE)

    assert heard.lane.note == "usage_odd"
    assert heard.lane.measure() == (Usage(OURS, 1), "estimated")
    assert finish_of(heard)["usage"]["total_tokens"] == OURS + 1


def test_sane_counts_survive_absurd_ones() -> None:
    """A merge per field: a later absurd value does not undo an earlier sane one."""
    heard = hear_openai(R(), T("a", (7, 1)), FIN("stop", {"prompt_tokens": -1, "completion_tokens": 2}), DONE)

    assert heard.lane.measure() == (Usage(7, 2), "provider_final")
    assert heard.lane.note == "usage_odd"


def test_reasoning_beside_the_answer() -> None:
    """Where the total shows that reasoning was counted beside the answer, it is put in: it is billed as well."""
    details = {"completion_tokens_details": {"reasoning_tokens": 50}}
    beside = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 60, **details}
    within = {"prompt_tokens": 7, "completion_tokens": 53, "total_tokens": 60, **details}
    silent = {"prompt_tokens": 7, "completion_tokens": 53, **details}

    for said in (beside, within, silent):
        heard = hear_openai(R(), T("a"), FIN("stop", said), DONE)

        assert heard.lane.measure() == (Usage(7, 53, reasoning_tokens=50), "provider_final")
        assert finish_of(heard)["usage"].items() >= {"completion_tokens": 53, "total_tokens": 60, **details}.items()


@pytest.mark.parametrize("name", ["prompt_cache_hit_tokens", "cached_tokens"])
def test_names_of_cached_tokens(name: str) -> None:
    """Vendors that do not know the details have members of their own; the details count where both are there."""
    said = {"prompt_tokens": 7, "completion_tokens": 3, name: 4}

    alone = hear_openai(R(), T("a"), FIN("stop", said), DONE)
    both = hear_openai(R(), T("a"), FIN("stop", {**said, "prompt_tokens_details": {"cached_tokens": 0}}), DONE)

    assert alone.lane.measure()[0].cached_tokens == 4
    assert finish_of(alone)["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert both.lane.measure()[0].cached_tokens == 0


def finish_with_usage(index: int = 0) -> bytes:
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return chunk({}, choices=[{"index": index, "delta": {}, "finish_reason": "stop", "usage": usage}])


def test_usage_in_the_choice_that_finishes() -> None:
    """It counts as any other, and the client has it where it looks for it."""
    heard = hear_openai(R(), T("a"), finish_with_usage(), DONE)

    assert heard.lane.measure() == (Usage(7, 3), "provider_final")
    assert finish_of(heard)["usage"]["total_tokens"] == 10


def test_usage_in_one_choice_of_several() -> None:
    """It would not be that of all, so ours counts."""
    several = [choice_chunk(index, {"role": "assistant", "content": "a"}) for index in (0, 1)]

    heard = hear_openai(*several, finish_with_usage(0), finish_with_usage(1), DONE, n=2)

    assert heard.lane.measure() == (Usage(OURS, 2), "estimated")


# -- tool calls --


def test_tool_calls_without_arguments() -> None:
    """A tool call that gets no argument text gets `{}`, once; one that has arguments is left alone."""
    heard = hear_openai(
        R(),
        TC(0, name="now"),
        TC(1, name="add"),
        TC(1, '{"a":'),
        TC(1, "1}"),
        TC(0, ""),
        FIN("tool_calls", (7, 9)),
        DONE,
    )

    assert shape(heard) == [
        "0:R", "0:TC0[]", "0:TC1[]", '0:TC1[{"a":]', "0:TC1[1}]", "0:TC0[]",
        "0:TC0[{}]", "0:FIN(tool_calls)", "META", "[DONE]",
    ]  # fmt: skip


def test_a_call_without_arguments_in_the_finish_chunk() -> None:
    """A call that opens in the finish chunk gets its `{}` there: it cannot have it before its name."""
    call = {"index": 0, "id": "call_0", "type": "function", "function": {"name": "now", "arguments": ""}}

    heard = hear_openai(R(), chunk({"tool_calls": [call]}, "tool_calls"), U(7, 1), DONE)

    assert shape(heard) == ["0:R", "0:TC0[{}]FIN(tool_calls)", "META", "[DONE]"]


def test_a_call_whose_arguments_are_missing() -> None:
    """`arguments` may be absent or null as well as empty."""
    calls: list[dict[str, Any]] = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "x"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "y", "arguments": None}},
    ]

    heard = hear_openai(R(), *(chunk({"tool_calls": [call]}) for call in calls), FIN("tool_calls"), DONE)

    assert shape(heard)[3:5] == ["0:TC0[{}]", "0:TC1[{}]"]


def test_arguments_of_the_choice_that_finishes_first() -> None:
    """Each choice has its arguments whole before its own finish."""
    call = [{"index": 0, "id": "a", "type": "function", "function": {"name": "x", "arguments": ""}}]

    heard = hear_openai(
        choice_chunk(0, {"role": "assistant", "tool_calls": call}),
        choice_chunk(1, {"role": "assistant", "tool_calls": call}),
        choice_chunk(0, {}, "tool_calls"),
        choice_chunk(1, {}, "tool_calls"),
        DONE,
        n=2,
    )

    assert shape(heard)[2:7] == ["0:", "0:TC0[{}]", "1:TC0[{}]", "0:FIN(tool_calls)", "1:FIN(tool_calls)"]


def test_a_broken_stream_never_completes_a_call() -> None:
    """Half a tool call is not made whole by us."""
    heard = hear_openai(R(), TC(0, name="now"))

    assert shape(heard) == ["0:R", "0:TC0[]", "ERRF(1, upstream_truncated)", "[DONE]"]


def test_arguments_that_are_an_object() -> None:
    """A vendor that streams arguments as an object is passed on; no `{}` is added to it."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "x", "arguments": {"a": 1}}}

    heard = hear_openai(R(), chunk({"tool_calls": [call]}), FIN("tool_calls"), DONE)

    assert shape(heard) == ["0:R", "0:TC0[{'a': 1}]", "0:FIN(tool_calls)", "META", "[DONE]"]
