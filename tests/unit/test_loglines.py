"""The form of a log line, and what never gets into one."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import time_machine
from hypothesis import given
from hypothesis import strategies as st

from gateway.loglines import MAX_FRAMES, MAX_MESSAGE, clean, describe, render_console, render_json

NOON = datetime(2026, 3, 14, 12, 0, 0, 5000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Cannot connect to host", "Cannot connect to host"),
        ("header Authorization: Bearer abc", "header ***"),
        ("Bearer abc.def rest", "*** rest"),
        ("key anm-sk-abc is unknown", "key *** is unknown"),
        ("key sk-abc is unknown", "key *** is unknown"),
        ("x-api-key: abc", "***"),
        ("{'api_key': 'abc'}", "{'***"),
        ("got 0123456789abcdefghij!", "got ***!"),
        ("first\nsecond", "first"),
        ("word " * 200, ("word " * 200)[:MAX_MESSAGE]),
    ],
)
def test_clean(text: str, expected: str) -> None:
    """Words of others keep their first line, without anything that looks like a credential."""
    assert clean(text) == expected


def test_json_line_reads_in_order() -> None:
    """A line is one JSON object: time in UTC with milliseconds, level, event, then the fields."""
    with time_machine.travel(NOON, tick=False):
        line = render_json(None, "info", {"port": 8080, "event": "server.started"})

    expected = b'{"timestamp":"2026-03-14T12:00:00.005Z","level":"info","event":"server.started","port":8080}\n'
    assert line == expected


def test_time_moves_on() -> None:
    """The part of the time stamp that is kept is kept for one second only."""
    with time_machine.travel(NOON, tick=False) as traveller:
        first = json.loads(render_json(None, "info", {"event": "a"}))["timestamp"]
        traveller.shift(59.5)
        second = json.loads(render_json(None, "info", {"event": "a"}))["timestamp"]

    assert (first, second) == ("2026-03-14T12:00:00.005Z", "2026-03-14T12:00:59.505Z")


def test_exception_is_described_without_its_secrets() -> None:
    """An exception becomes types, cleaned messages and places; no local variable, no source line."""

    def send(secret: str) -> None:
        raise ValueError(f"bad value Bearer {secret}")

    def relay() -> None:
        try:
            send("canary-in-a-local")
        except ValueError as exc:
            raise RuntimeError("relay failed") from exc

    with pytest.raises(RuntimeError) as caught:
        relay()
    line = render_json(None, "error", {"event": "internal.error", "exc_info": caught.value})
    chain = json.loads(line)["exception"]

    assert b"canary" not in line
    assert [(link["type"], link["message"]) for link in chain] == [
        ("RuntimeError", "relay failed"), ("ValueError", "bad value ***"),
    ]
    assert chain[1]["frames"][-1].startswith(f"{__name__}:")
    assert chain[1]["frames"][-1].endswith(" send")


def test_exception_description_is_bounded() -> None:
    """Deep recursion keeps the innermost frames, a long chain its outermost links, a group its first member."""

    def land() -> None:
        raise KeyError("bottom")

    def fall(depth: int) -> None:
        if depth:
            fall(depth - 1)
        land()

    with pytest.raises(KeyError) as caught:
        fall(100)
    group = ExceptionGroup("several", [caught.value, ValueError("other")])
    links = describe(group)
    chained: BaseException = ValueError("0")
    for number in range(1, 9):
        upper = ValueError(str(number))
        upper.__cause__ = chained
        chained = upper

    assert [(link["type"], len(link["frames"])) for link in links] == [("ExceptionGroup", 0), ("KeyError", MAX_FRAMES)]
    assert [frame.split()[-1] for frame in links[1]["frames"][-2:]] == ["fall", "land"]
    assert [link["message"] for link in describe(chained)] == ["8", "7", "6", "5"]


def test_exception_that_cannot_be_printed_is_survived() -> None:
    """An exception whose own text raises is still described."""

    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert describe(Broken())[0]["type"].endswith("Broken")


def test_active_exception_is_taken() -> None:
    """`exc_info=True` means the exception being handled; without one there is none."""
    try:
        raise ValueError("active")
    except ValueError:
        inside = json.loads(render_json(None, "error", {"event": "e", "exc_info": True}))
    outside = json.loads(render_json(None, "error", {"event": "e", "exc_info": True}))

    assert (inside["exception"][0]["message"], "exception" in outside) == ("active", False)


def test_unknown_objects_show_their_type_only() -> None:
    """The repr of an object may hold anything, so it is not asked for."""

    class Credential:
        def __repr__(self) -> str:
            return "canary"

    fields: dict[str, Any] = {"event": "e", "value": Credential(), "odd": [{"\ud800": Credential()}]}
    both = render_json(None, "info", dict(fields)) + render_console(None, "info", dict(fields))

    assert (b"canary" in both, both.count(b"<Credential>")) == (False, 4)


def test_console_line() -> None:
    """For people: time, level, event and fields on one line; an exception below it."""
    with time_machine.travel(NOON, tick=False):
        line = render_console(None, "warning", {"event": "route.opened", "route": "a/m", "why": "too many", "n": 3})
        error = render_console(None, "error", {"event": "e", "exc_info": ValueError("x y")})

    assert line == b"12:00:00.005 warning  route.opened route=a/m why='too many' n=3\n"
    assert error == b"12:00:00.005 error    e\n    ValueError: 'x y'\n"


NASTY = st.one_of(
    st.text(st.characters(), max_size=20),
    st.sampled_from(["a\nb", "\x1b[31m", "\u2028", "\ud800", "\x9b2J", "x=y", ""]),
    st.integers(), st.floats(), st.binary(max_size=5), st.none(),
    st.dictionaries(st.one_of(st.text(max_size=3), st.integers(), st.binary(max_size=2)), st.integers(), max_size=3),
    st.lists(st.sampled_from(["\udcff", "\n", object(), {1, 2}]), max_size=3),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), NASTY), NASTY)
def test_any_value_makes_one_line(fields: dict[str, Any], event: object) -> None:
    """Whatever is logged: no exception, one line, valid JSON, nothing that steers a terminal."""
    as_json = render_json(None, "info", {**fields, "event": event})
    console = render_console(None, "info", {**fields, "event": event})

    assert json.loads(as_json)["level"] == "info"
    assert (as_json.count(b"\n"), as_json[-1:]) == (1, b"\n")
    assert (console.count(b"\n"), console.decode()[:-1].isprintable()) == (1, True)


def test_endless_structure_is_survived() -> None:
    """A structure that holds itself is cut off."""
    loop: list[Any] = []
    loop.append(loop)

    assert json.loads(render_json(None, "info", {"event": "e", "loop": loop}))["event"] == "e"
