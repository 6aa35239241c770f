"""A lane with nothing around it: what goes in is what a provider says, what comes out is what a client reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import structs

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import DialectName, Provider, Route
from gateway.core.errors import Failure
from gateway.core.money import parse_weight
from gateway.core.receipt import Receipt
from gateway.dialects.base import Journey, Lane, LaneRules
from gateway.dialects.edited import EditedLane
from gateway.dialects.registry import DIALECTS
from tests.support.frames import chat, messages
from tests.support.notation import chunk
from tests.unit.receipts import receipt

SLUG = "gpt-of-ours"
OURS = 5  # our estimate of the prompt "Hi": one token and four of the message's frame
RESET = Failure("upstream_error", "reset")

End = Literal["finished", "interrupted", "refused"]


def openai_call(**fields: Any) -> Call:
    """A streaming chat call for `SLUG`; *fields* are further members of its body."""
    body = json.dumps(chat(SLUG, **fields)).encode()
    return DIALECTS["openai_chat"].read_call(body, CallOptions(), ())


def anthropic_call(**fields: Any) -> Call:
    """A streaming messages call for `SLUG`."""
    body = json.dumps(messages(SLUG, **fields)).encode()
    return DIALECTS["anthropic_messages"].read_call(body, CallOptions(), ())


def journey(
    call: Call,
    *,
    options: CallOptions | None = None,
    model: str = "vendor-model",
    speaks: DialectName | None = None,
    **rules: Any,
) -> Journey:
    """Where a lane for *call* runs; *model* is the provider's name for it, *rules* are those of `LaneRules`.

    The provider *speaks* the call's own dialect, unless told otherwise.
    """
    if options is not None:
        call = structs.replace(call, options=options)
    dialect = speaks or call.dialect
    provider = Provider("vendor", dialect, "https://vendor.test/v1", "cloud_direct", "US", parse_weight("1"))
    route = Route(provider, model)
    return Journey(call, route, "req_1", 1_700_000_000, LaneRules(**rules))


def openai(**fields: Any) -> Lane:
    """A lane for a chat call with *fields*."""
    return DIALECTS["openai_chat"].open_lane(journey(openai_call(**fields)))


def anthropic(**fields: Any) -> Lane:
    """A lane for a messages call with *fields*."""
    return DIALECTS["anthropic_messages"].open_lane(journey(anthropic_call(**fields)))


@dataclass(frozen=True, slots=True)
class Heard:
    """What the client got, and how it ended: "refused" means that a plain HTTP error is still possible."""

    out: bytes
    end: End
    lane: Lane

    @property
    def frames(self) -> list[bytes]:
        """The frames without their blank lines; the output must consist of whole ones."""
        assert self.out == b"" or self.out.endswith(b"\n\n")
        return self.out.split(b"\n\n")[:-1]

    @property
    def items(self) -> list[Any]:
        """The data of each frame as JSON, or as text."""
        lines = [frame.split(b"\n")[-1].removeprefix(b"data: ") for frame in self.frames]
        return [json.loads(line) if line[:1] == b"{" else line.decode() for line in lines]


def settled(lane: Lane) -> Receipt:
    """The receipt of a completed answer of *lane*."""
    usage, basis = lane.measure()
    return receipt(usage=usage, usage_basis=basis)


def hear(lane: Lane, pieces: Iterable[bytes], failure: Failure | None = None) -> Heard:
    """
    What a client hears of a provider that says *pieces* and then ends, properly or by *failure*.

    This is what the pipeline does with a lane, without its waiting: one that is edited is concluded first.
    """
    out = b""
    for piece in pieces:
        if lane.ended or lane.failure is not None:
            break
        out += lane.feed(piece)
    if not lane.ended and lane.failure is None and failure is None:
        out += lane.end()
    broken = lane.failure or (None if lane.ended else failure)
    if (broken is None or lane.complete) and isinstance(lane, EditedLane):
        broken = lane.conclude()
    if broken is None or lane.complete:
        return Heard(out + lane.finish(settled(lane)), "finished", lane)
    if not out:
        return Heard(out, "refused", lane)
    return Heard(out + lane.fail(broken, settled(lane)), "interrupted", lane)


def hear_openai(*pieces: bytes, **fields: Any) -> Heard:
    """A chat conversation, checked for everything that must hold of any output."""
    heard = hear(openai(**fields), pieces)
    check_openai(heard)
    return heard


def hear_anthropic(*pieces: bytes, **fields: Any) -> Heard:
    """A messages conversation, checked for everything that must hold of any output."""
    heard = hear(anthropic(**fields), pieces)
    check_anthropic(heard)
    return heard


def choice_chunk(index: int, delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    """A chunk of one choice of several."""
    return chunk({}, choices=[{"index": index, "delta": delta, "finish_reason": finish}], **more)


def shape(heard: Heard) -> list[str]:
    """An OpenAI conversation in the notation of the case catalogue."""
    out = []
    for item in heard.items:
        if not isinstance(item, dict):
            out.append(item)
        elif "error" in item:
            out.append("ERRF({completion_tokens}, {failure_class})".format(**item["error"]["_anoman"]))
        elif item.get("object") == "anoman.metadata":
            out.append("META")
        else:
            out.extend(f"{choice['index']}:{_sign(choice)}" for choice in item["choices"])
    return out


def _sign(choice: dict[str, Any]) -> str:
    delta, finish = choice["delta"], choice.get("finish_reason")
    calls = "".join(f"TC{c['index']}[{c['function'].get('arguments')}]" for c in delta.get("tool_calls") or ())
    said = "R" if delta.get("role") else calls or delta.get("content") or ""
    return said + (f"FIN({finish})" if finish else "")


def finish_of(heard: Heard) -> dict[str, Any]:
    """The finish chunk of a finished conversation: third from last."""
    out: dict[str, Any] = heard.items[-3]
    return out


def texts(items: Iterable[Any]) -> dict[int, str]:
    """The text of each choice in parsed chunks, by index."""
    out: dict[int, str] = {}
    for item in items:
        for choice in item.get("choices", ()) if isinstance(item, dict) else ():
            piece = choice["delta"].get("content")
            out[choice["index"]] = out.get(choice["index"], "") + (piece if isinstance(piece, str) else "")
    return out


# -- what must hold of any output --


def check_openai(heard: Heard) -> None:
    """Whole canonical frames, a constant envelope, one usage, the documented end."""
    assert heard.out.isascii()
    assert b"\r" not in heard.out
    if heard.end == "refused":
        assert heard.out == b""
        return
    frames, items = heard.frames, heard.items
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames)
    assert items[-1] == "[DONE]"
    assert all(isinstance(item, dict) for item in items[:-1])
    chunks = items[:-2]
    if heard.end == "finished":
        assert frames[-2].startswith(b'data: {"_anoman":')
        _check_metadata(items[-2], chunks[-1])
        assert chunks[-1]["choices"][0]["finish_reason"] is not None
    else:
        assert frames[-2].startswith(b'data: {"error":{"type":"provider_error","code":"stream_interrupted"')
        assert items[-2]["error"]["_anoman"]["completion_tokens"] == heard.lane.measure()[0].completion_tokens
    with_usage = [chunk for chunk in chunks if chunk.get("usage") is not None]
    assert with_usage == (chunks[-1:] if heard.end == "finished" else [])
    _check_chunks(chunks)


def _check_metadata(metadata: dict[str, Any], finish: dict[str, Any]) -> None:
    assert list(metadata) == ["_anoman", "id", "object", "created", "model", "choices"]
    assert metadata["object"] == "anoman.metadata"
    assert metadata["id"] == finish["id"]
    assert metadata["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}]


def _check_chunks(chunks: list[dict[str, Any]]) -> None:
    envelopes = {json.dumps([chunk[name] for name in ("id", "object", "created", "model")]) for chunk in chunks}
    assert len(envelopes) == 1
    (envelope,) = map(json.loads, envelopes)
    assert [type(value) for value in envelope] == [str, str, int, str]
    assert envelope[1] == "chat.completion.chunk"
    assert envelope[3] == SLUG
    opened: set[int] = set()
    closed: set[int] = set()
    for item in chunks:
        assert not {"error", "_anoman"} & set(item)
        assert item["choices"]
        for choice in item["choices"]:
            assert type(choice["index"]) is int
            assert isinstance(choice["delta"], dict)
            assert choice["index"] in opened or "role" in choice["delta"]
            assert not (choice["index"] in closed and choice["delta"].get("content"))
            opened.add(choice["index"])
            if choice.get("finish_reason"):
                assert choice["index"] not in closed
                closed.add(choice["index"])


def check_anthropic(heard: Heard) -> None:
    """Whole named frames, our model name, `_anoman` and usage where they belong, the documented end."""
    assert heard.out.isascii()
    assert b"\r" not in heard.out
    if heard.end == "refused":
        assert heard.out == b""
        return
    for frame, item in zip(heard.frames, heard.items, strict=True):
        name, data, *more = frame.split(b"\n")
        assert more == []
        assert data.startswith(b"data: ")
        assert name == b"event: " + item["type"].encode()
    items = heard.items
    for item in items:
        if item["type"] == "message_start":
            assert item["message"]["model"] == SLUG
            assert set(item["message"]["_anoman"]) == {"guardrails", "routing", "cache"}
            assert min(item["message"]["usage"]["input_tokens"], item["message"]["usage"]["output_tokens"]) >= 0
    ends = [item["type"] for item in items if item["type"] in ("error", "message_stop")]
    if heard.end == "interrupted":
        assert ends == [items[-1]["type"]] == ["error"]
        assert items[-1]["error"]["_anoman"]["completion_tokens"] == heard.lane.measure()[0].completion_tokens
        return
    assert ends == [items[-1]["type"]] == ["message_stop"]
    assert "_anoman" in items[-1]
    deltas = [item for item in items if item["type"] == "message_delta"]
    last = [items[-2]["type"] == "message_delta"] if deltas else []
    assert [("_anoman" in item) for item in deltas] == [False] * (len(deltas) - 1) + last
    if last == [True]:
        assert deltas[-1]["usage"]["output_tokens"] == heard.lane.measure()[0].completion_tokens
