"""The playground's body and frames."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.call import Call, CallOptions
from gateway.core.errors import INFLIGHT_CAP, INVALID_REQUEST, GatewayError
from gateway.dialects.openai_chat import read_call
from gateway.dialects.openai_panels import PanelCall, PanelMark, cancelled_panel, error_frame, panel_error, read_run
from gateway.wire.sse import frame
from tests.support.scale import examples

OPTIONS = CallOptions(strip_extension=True)
HEADERS = (("openai-beta", "x"),)
ASK = '"messages":[{"role":"user","content":"Hi"}]'


def read(body: str) -> Call | tuple[PanelCall, ...]:
    return read_run(body.encode(), OPTIONS, HEADERS)


def panels(body: str) -> tuple[PanelCall, ...]:
    run = read(body)
    assert isinstance(run, tuple)
    return run


def sent(call: Call) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in call.fields.items()}


@pytest.mark.parametrize("panels", ["", ',"panels":null'])
def test_without_panels(panels: str) -> None:
    """A body without panels is what it is on the chat endpoint, to the byte."""
    plain = f'{{"model":"m",{ASK},"temperature":0.70,"stream":true'

    call = read(f"{plain}{panels}}}")

    wanted = read_call(f"{plain}}}".encode(), OPTIONS, HEADERS)
    assert isinstance(call, Call)
    assert sent(call) == sent(wanted)
    assert (call.slug, call.stream, call.options, call.forward_headers) == ("m", True, OPTIONS, HEADERS)


def test_members_of_a_panel_stand_in_front() -> None:
    """A panel has the body's members but for its own; values keep their spelling, and neither id nor panels is sent."""
    own = '"panels":[{"id":"a","model":"x","temperature":0.10},{"id":"B_2-c","max_tokens":7,"unknown":[1.0]}]'

    first, second = panels(f'{{"model":"m",{ASK},"temperature":1e0,"stream":true,{own}}}')

    shared = {"messages": b'[{"role":"user","content":"Hi"}]', "stream": b"true"}
    assert (first.id, first.call.slug, first.call.stream) == ("a", "x", True)
    assert sent(first.call) == {"model": b'"x"', **shared, "temperature": b"0.10"}
    assert (second.id, second.call.slug, second.call.options) == ("B_2-c", "m", OPTIONS)
    assert sent(second.call) == {
        "model": b'"m"', **shared, "temperature": b"1e0", "max_tokens": b"7", "unknown": b"[1.0]",
    }  # fmt: skip


def test_what_a_panel_may_bring() -> None:
    """A panel may have messages and a user of its own, so the body need not."""
    said = '[{"role":"user","content":"Yo"}]'

    (panel,) = panels(f'{{"panels":[{{"id":"a","model":"m","user":"ani","messages":{said}}}]}}')

    assert (panel.call.user, panel.call.stream, bytes(panel.call.fields["messages"])) == ("ani", False, said.encode())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ('"panels":{}', "panels"),
        ('"panels":"a"', "panels"),
        ('"panels":[]', "panels"),
        ('"panels":[1]', "panels"),
        ('"panels":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}]', "panels"),
        ('"panels":[{}]', "panels[0].id"),
        ('"panels":[{"id":"a"},{"id":""}]', "panels[1].id"),
        ('"panels":[{"id":1}]', "panels[0].id"),
        ('"panels":[{"id":"a b"}]', "panels[0].id"),
        ('"panels":[{"id":"a\\n"}]', "panels[0].id"),
        ('"panels":[{"id":"é"}]', "panels[0].id"),
        (f'"panels":[{{"id":"{"x" * 65}"}}]', "panels[0].id"),
        ('"panels":[{"id":"a"},{"id":"b"},{"id":"\\u0061"}]', "panels[2].id"),
        ('"panels":[{"id":"a","stream":true}]', "panels[0].stream"),
        ('"panels":[{"id":"a","panels":[]}]', "panels[0].panels"),
        ('"panels":[{"id":"a"},{"id":"b","temperature":3}]', "panels[1].temperature"),
        ('"panels":[{"id":"a","stop":["1","2","3","4","5"]}]', "panels[0].stop"),
        ('"panels":[{"id":"a","messages":[{"role":1}]}]', "panels[0].messages[0].role"),
        ('"panels":[{"id":"a","model":""}]', "panels[0].model"),
        ('"temperature":3,"panels":[{"id":"a"}]', "temperature"),
        ('"stream":"yes","panels":[{"id":"a"}]', "stream"),
        ('"panels":[{"id":"a","temperature":1,"temperature":2}]', "temperature"),
        ('"panels":[{"id":"a"}],"panels":[{"id":"a"}]', "panels"),
    ],
)
def test_refusals(body: str, param: str) -> None:
    """What is wrong is a 400 with the place of it, which the sentence has too."""
    with pytest.raises(GatewayError) as refused:
        read(f'{{"model":"m",{ASK},{body}}}')

    error = refused.value
    assert (error.kind, error.param) == (INVALID_REQUEST, param)
    assert error.message.startswith((param, "An object in the request body has the same key twice"))


def test_a_member_that_nobody_has() -> None:
    """A model that neither the body nor the panel names is missing in the panel."""
    with pytest.raises(GatewayError) as refused:
        read(f'{{{ASK},"panels":[{{"id":"a","model":"m"}},{{"id":"b"}}]}}')

    assert (refused.value.param, refused.value.message) == (
        "panels[1].model",
        "panels[1].model: This field is required.",
    )


def test_messages_that_one_panel_brings() -> None:
    """That a panel has messages of its own says nothing of the body's, which the next one has."""
    own = '{"id":"a","messages":[{"role":"user","content":"Hi"}]}'

    with pytest.raises(GatewayError) as refused:
        read(f'{{"model":"m","messages":[],"panels":[{own},{{"id":"b"}}]}}')

    assert refused.value.param == "messages"


def test_messages_are_read_once() -> None:
    """Each panel that does not bring its own has the body's messages, byte for byte."""
    said = '[{"role":"user","content":"Hi"}, {"role" : "x"}]'

    run = panels(f'{{"model":"m","messages":{said},"panels":[{{"id":"a"}},{{"id":"b"}},{{"id":"c"}}]}}')

    assert [bytes(panel.call.fields["messages"]) for panel in run] == [said.encode()] * 3


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8) | st.sampled_from(['"panel"', "}\n\n", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from(["id", "choices", "panel", "usage", "x"]), json_values, min_size=1)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(objects, st.sampled_from(["", " ", "  "])), max_size=4))
def test_every_frame_is_marked(payloads: list[tuple[dict[str, Any], str]]) -> None:
    """Each frame is the object it was with the panel's id as its last member, whatever is in it, on one line."""
    frames = b"".join(frame((json.dumps(payload) + blank).encode()) for payload, blank in payloads)

    out = PanelMark("a-1")(frames)

    lines = out.decode().split("\n\n")
    assert lines.pop() == ""
    read_back = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert read_back == [{**payload, "panel": "a-1"} for payload, _ in payloads]
    assert all(list(item)[-1] == "panel" for item in read_back)
    assert out.count(b'"panel":"a-1"}\n\n') == len(payloads)


def test_frames_keep_their_bytes() -> None:
    """A frame's bytes stay as they were but for its last brace."""
    first, second = b'data: {"id": "c1", "x": 1e0}', b'data: {"_anoman":{"a":0.10}}'

    out = PanelMark("b")(first + b"\n\n" + second + b"\n\n")

    assert out == first[:-1] + b',"panel":"b"}\n\n' + second[:-1] + b',"panel":"b"}\n\n'


def test_error_of_a_panel() -> None:
    """What was refused is told in OpenAI's words, with what an HTTP answer would have in its head."""
    said = panel_error(GatewayError(INFLIGHT_CAP, "Too many.", retry_after_s=2), "req_1-a")

    assert said == {
        "message": "Too many.",
        "type": "requests",
        "param": None,
        "code": "inflight_cap",
        "_anoman": {"request_id": "req_1-a", "status": 429, "retry_after_s": 2},
    }
    assert "retry_after_s" not in panel_error(GatewayError(INVALID_REQUEST), "r")["_anoman"]


def test_cancelled_panel() -> None:
    """The frame of a cancelled panel has the shape of the one that tells of an interruption."""
    out = PanelMark("c")(error_frame(cancelled_panel(42)))

    assert out == (
        b'data: {"error":{"type":"cancelled","code":"panel_cancelled","message":"the panel was cancelled",'
        b'"_anoman":{"completion_tokens":42}},"panel":"c"}\n\n'
    )
