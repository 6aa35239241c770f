"""What providers say, honest or not, for the properties of lanes: streams with their meaning, and ways to cut them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st

from tests.support.notation import AERR, CBD, CBJ, CBS, CBX, DONE, MD, MS, MX, PING, U, chunk, data, event
from tests.unit.dialects.conversations import choice_chunk

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)  # on purpose: many runs per example
PARTITIONS = 8  # cuts tried per stream besides the whole and the single bytes

WORDS = ["a", "Once ", "北🦀é", "\u2028", "\u0085", '"model":"m"', "\\", "\n", "", "data: [DONE]", "\ufeff"]
ESCAPED = {"LONE": rb"\ud83d", "TAIL": rb"\udf78", "RAW": b"\x0b"}  # what json.dumps would not write
ENVELOPES: list[dict[str, Any]] = [
    {}, {}, {}, {"id": "other"}, {"created": "1"}, {"created": 1.0}, {"object": None}, {"model": "vendor-2024"},
    {"system_fingerprint": "é"}, {"usage": None}, {"error": None}, {"x": {"model": "m"}},
]  # fmt: skip
ODD: list[dict[str, Any]] = [
    {"choices": "x"}, {"choices": [None]}, {"choices": []},
    {"choices": [{"index": "0", "delta": 7, "finish_reason": 1}]},
]  # fmt: skip
KINDS = ["text", "text", "text", "role", "tool", "thought", "odd", "usage", "content + finish"]
FINAL_USAGES: list[int | dict[str, Any]] = [5, {}, {"output_tokens": 5, "x": None}]
NOISE = [b": keep-alive\n\n", b"retry: 5\n\n", b"data:\n\n", b"id: 1\n\n", b"event: message\n", b"\n", b": x\n"]


@dataclass
class Said:
    """One event: its bytes, and what it means by the contract, for the oracle of the death property."""

    raw: bytes
    opens: int | None = None
    finishes: int | None = None
    adds: bool = False
    text: str = ""
    ends: bool = False
    breaks: bool = False


@st.composite
def spellings(draw: st.DrawFn, raw: bytes) -> bytes:
    """*raw*, one event, in one of the forms that the standard allows."""
    lead, _, payload = raw.rstrip(b"\n").partition(b"data: ")
    how = draw(st.sampled_from(["plain", "plain", "plain", "no space", "spaced", "spread", "escaped"]))
    if payload[:1] == b"{" and how == "spaced":
        payload = json.dumps(json.loads(payload)).encode()
    if payload[:1] == b"{" and how == "spread":
        payload = json.dumps(json.loads(payload), indent=1, ensure_ascii=False).replace("\n", "\ndata: ").encode()
    if payload[:1] == b"{" and how == "escaped":
        payload = json.dumps(json.loads(payload), separators=(",", ":")).encode()
    for name, odd in ESCAPED.items():
        payload = payload.replace(name.encode(), odd)
    end = draw(st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))
    noise = draw(st.sampled_from([b"", b"", b"", *NOISE]))
    if noise and not noise.endswith(b"\n\n") and lead:
        noise = b""  # it would name an event that has a name
    out = noise + lead + (b"data:" if how == "no space" else b"data: ") + payload + b"\n\n"
    return out.replace(b"\n", end)


def mended(word: str) -> str:
    """What a client may make of *word*."""
    return word.replace("LONE", "\ufffd").replace("TAIL", "\ufffd").replace("RAW", "\x0b")


@st.composite
def openai_streams(draw: st.DrawFn) -> list[Said]:
    """A stream of one or two choices, honest or not, with its meaning."""
    choices = draw(st.sampled_from([1, 1, 1, 2]))
    indexes = draw(st.lists(st.integers(0, choices - 1), max_size=7))
    out = [draw(_openai_events(index, choices)) for index in indexes]
    usage = draw(st.sampled_from(["none", "own chunk", "on finish"]))
    for index in range(choices) if draw(st.booleans()) else ():
        tokens = {"usage": {"prompt_tokens": 7, "completion_tokens": 3}} if usage == "on finish" else {}
        out.append(Said(choice_chunk(index, {}, "stop", **tokens), opens=index, finishes=index))
    if usage == "own chunk":
        out.append(Said(U(7, 3)))
    if draw(st.booleans()):
        out.append(Said(DONE, ends=True))
    if draw(st.integers(0, 9)) == 0:
        at = draw(st.integers(0, len(out)))
        out.insert(at, Said(data({"error": {"message": "m"}}), breaks=True))
    return [_respelled(draw, said) for said in out]


def _respelled(draw: st.DrawFn, said: Said) -> Said:
    return Said(draw(spellings(said.raw)), said.opens, said.finishes, said.adds, said.text, said.ends, said.breaks)


@st.composite
def _openai_events(draw: st.DrawFn, index: int, choices: int) -> Said:
    envelope = draw(st.sampled_from(ENVELOPES))
    kind = draw(st.sampled_from(KINDS))
    word = draw(st.sampled_from([*WORDS, *ESCAPED]))
    if kind == "role":
        return Said(choice_chunk(index, {"role": "assistant", "content": ""}, **envelope), opens=index)
    if kind == "tool":
        call = [{"index": draw(st.integers(0, 1)), "id": "c", "function": {"name": "f", "arguments": ""}}]
        return Said(choice_chunk(index, {"tool_calls": call}, **envelope), opens=index, adds=True)
    if kind == "thought":
        return Said(choice_chunk(index, {"reasoning_content": "hm"}, **envelope), opens=index, adds=True)
    if kind == "odd":
        odd = draw(st.sampled_from(ODD))
        opens = 0 if isinstance(odd["choices"], list) and odd["choices"] not in ([], [None]) else None
        return Said(chunk({}, None, None, **{**envelope, **odd}), opens=opens)
    if kind == "content + finish":
        raw = choice_chunk(index, {"content": word}, "stop", **envelope)
        return Said(raw, opens=index, finishes=index, adds=bool(word), text=mended(word))
    if kind == "usage":
        envelope = {**envelope, "usage": {"prompt_tokens": 7, "completion_tokens": 1}}
    raw = choice_chunk(index, {"content": word}, **envelope)
    return Said(raw, opens=index, adds=bool(word), text=mended(word))


@st.composite
def anthropic_streams(draw: st.DrawFn) -> list[Said]:
    """A message, honest or not, with its meaning."""
    out = [Said(MS(25, 1, cache_read_input_tokens=draw(st.integers(0, 3))))]
    for index in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["text", "tool_use", "thinking"]))
        out.append(Said(CBS(index, kind)))
        for _ in range(draw(st.integers(0, 3))):
            word = draw(st.sampled_from([*WORDS, *ESCAPED]))
            out.append(Said(CBD(index, word) if kind == "text" else CBJ(index, word), adds=True))
        out.append(Said(CBX(index)))
        if draw(st.booleans()):
            out.append(Said(draw(st.sampled_from([PING, event("new", {"type": "new", "é": 1}), MD(None, 1)]))))
    if draw(st.booleans()):
        out.append(Said(MD("end_turn", draw(st.sampled_from(FINAL_USAGES)))))
    if draw(st.booleans()):
        out.append(Said(MX, ends=True))
    if draw(st.integers(0, 9)) == 0:
        out.insert(draw(st.integers(0, len(out))), Said(AERR("overloaded_error"), breaks=True))
    return [_respelled(draw, said) for said in out]


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    """*stream* cut at *cuts*, which may repeat: empty reads are reads too."""
    places = sorted(min(cut, len(stream)) for cut in cuts)
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


cut_lists = st.lists(st.lists(st.integers(0, 3000), max_size=12), min_size=PARTITIONS, max_size=PARTITIONS)
