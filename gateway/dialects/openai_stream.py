"""OpenAI chat chunks from a provider to a client of the same dialect."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core.errors import TRUNCATED
from gateway.core.receipt import Receipt, extension
from gateway.core.usage import Basis, Usage
from gateway.dialects.base import Journey
from gateway.dialects.failures import in_band_failure, malformed
from gateway.dialects.lane import PassthroughLane
from gateway.dialects.openai_usage import UsageReader, usage_object
from gateway.dialects.prompt import prompt_tokens
from gateway.wire.ascii import ascii_json, mend_json
from gateway.wire.body import replace_members
from gateway.wire.sse import Event, frame

CHUNK = "chat.completion.chunk"
METADATA = "anoman.metadata"
DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": ping\n\n"
NOTHING = frozenset((b"", b"null", b'""', b"{}", b"[]", b"false"))  # an `error` member that says that there is none
_NULL = Raw(b"null")


class _Function(Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(Struct, gc=False):
    index: int = 0
    function: _Function | None = None


class _Delta(Struct, gc=False):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    function_call: _Function | None = None
    audio: Raw | None = None


class _Choice(Struct, gc=False):
    index: int | UnsetType = UNSET
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(Struct, gc=False):
    id: str | None = None
    object: str | None = None
    created: int | None = None
    model: str | None = None
    choices: list[_Choice] | None = None
    usage: Raw = _NULL
    error: Raw = _NULL


_chunks = msgspec.json.Decoder(_Chunk)
_members = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode
_decode = msgspec.json.decode


class OpenAIChatLane(PassthroughLane):
    """Chunks in, chunks out. The last finish chunk is held back until the usage is known."""

    def __init__(self, journey: Journey) -> None:
        super().__init__(journey)
        self._id = ""
        self._created = 0
        self._model_in: str | None = None
        self._model_in_json = b""
        self._model_out_json = b""
        self._reader = UsageReader()
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self._finish: bytes | None = None  # payload of the held-back finish chunk, as the provider sent it
        self._argumentless: dict[tuple[int, int], bool] = {}  # (choice, tool) -> no argument text so far

    def measure(self) -> tuple[Usage, Basis]:
        """The provider's count where it gave one, ours for the rest."""
        reader = self._reader
        if self.complete and reader.whole:
            return reader.usage, "provider_final"
        counted = self.completion_tokens()
        usage = reader.filled(0 if reader.has_prompt else prompt_tokens(self.journey.call), counted)
        if not self.complete and reader.whole and counted <= reader.usage.completion_tokens:
            return usage, "received"
        return usage, "estimated"

    def completion_tokens(self) -> int:
        """Tokens of the answer so far."""
        return max(self._reader.usage.completion_tokens, self._tally.tokens())

    def heartbeat(self) -> bytes:
        """A comment. It is safe as long as no event of ours carries an id."""
        return HEARTBEAT

    def finish(self, receipt: Receipt) -> bytes:
        """Whole tool arguments, the finish chunk with its usage, the metadata frame, the terminator."""
        out = [frame(self._chunk_of(delta, index)) for index, delta in self._missing_arguments()]
        out.append(frame(self._rewrite(self._finish or b"{}", usage_object(receipt.usage, self._reader.raw))))
        if not self.journey.call.options.strip_extension:
            out.append(frame(self._metadata(receipt)))
        out.append(DONE)
        return b"".join(out)

    def _take(self, event: Event) -> bytes:
        data = event.data
        if data[:6] == b"[DONE]":
            self._done()
            return b""
        read = self._read(data)
        if read is None:
            return b""
        chunk, payload = read
        if event.name == b"error" or (chunk.error is not _NULL and bytes(chunk.error) not in NOTHING):
            self._break(in_band_failure(payload))
            return b""
        if chunk.usage is not _NULL and bytes(chunk.usage) not in NOTHING:
            self._reader.take(chunk.usage)
            if self._reader.odd:
                self.note = "usage_odd"
        if not chunk.choices:  # the usage chunk, or filter results with no choice: simple clients index choices[0]
            self.ended = self.complete and self._reader.whole
            return b""
        return self._take_choices(chunk, chunk.choices, payload)

    def _done(self) -> None:
        if self.complete:
            self.ended = True
        else:
            self._break(TRUNCATED)

    def _read(self, data: bytes) -> tuple[_Chunk, bytes] | None:
        """*data* as a chunk and the JSON it was read from; None (and `failure`) when it is no JSON object."""
        payload = ascii_json(data)
        try:
            return _chunks.decode(payload), payload
        except msgspec.ValidationError:
            mended: bytes | None = payload
        except (msgspec.DecodeError, RecursionError):
            mended = mend_json(data)
        try:
            if mended is not None:
                return _lenient(mended), mended
        except (msgspec.DecodeError, RecursionError):
            pass
        self._break(malformed(data[:500].decode("utf-8", "replace")))
        return None

    def _take_choices(self, chunk: _Chunk, choices: list[_Choice], payload: bytes) -> bytes:
        if not self._id:
            self._learn(chunk)
        out = b""
        hollow = True
        finishing = False
        for choice in choices:
            index = choice.index if choice.index is not UNSET else 0
            if index not in self._seen:
                out += self._first_of(index, choice)
            text = _text(choice.delta)
            if text is not None:
                hollow = False
                self.talking = True
                self._tally.add(text)
                if choice.delta is not None and choice.delta.tool_calls:
                    self._watch_arguments(index, choice.delta.tool_calls)
            if choice.finish_reason:
                finishing = True
        if not hollow or finishing:
            self.progress += 1
            if self._finish is not None:
                out = self._let_go(choices) + out
        if finishing:
            return out + self._take_finish(chunk, choices, payload)
        return out + frame(self._forward(chunk, choices, payload))

    def _take_finish(self, chunk: _Chunk, choices: list[_Choice], payload: bytes) -> bytes:
        """Hold a finish chunk back once every choice seen so far has finished; let any other pass."""
        self._finished.update(_index(choice) for choice in choices if choice.finish_reason)
        if self._finished >= self._seen:
            self._finish = payload
            self.complete = True
            return b""
        return frame(self._forward(chunk, choices, payload))

    def _let_go(self, choices: list[_Choice]) -> bytes:
        """Release the held finish chunk since more follows it; a choice that goes on has not finished after all."""
        held, self._finish = self._finish or b"{}", None
        self.complete = False
        going_on = {_index(choice) for choice in choices} & self._finished
        self._finished -= going_on
        parsed = _lenient(held)
        for choice in parsed.choices or ():
            if _index(choice) in going_on:
                choice.finish_reason = None
        if all(_text(c.delta) is None and c.finish_reason is None for c in parsed.choices or ()):
            return b""
        return frame(self._rewrite(held, unfinished=going_on))

    def _first_of(self, index: int, choice: _Choice) -> bytes:
        """The role chunk of a choice whose provider sends none."""
        self._seen.add(index)
        self.progress += 1
        if choice.delta is not None and choice.delta.role is not None:
            return b""
        return frame(self._chunk_of({"role": "assistant", "content": ""}, index))

    def _learn(self, chunk: _Chunk) -> None:
        """Fix the envelope that every chunk of this stream will carry."""
        journey = self.journey
        self._id = chunk.id or f"chatcmpl-{journey.request_id}"
        self._created = chunk.created if chunk.created else journey.created_epoch_s
        self._model_in = chunk.model
        self._model_in_json = b'"model":' + _encode(chunk.model)
        self._model_out_json = b'"model":' + _encode(journey.call.slug)

    def _forward(self, chunk: _Chunk, choices: list[_Choice], payload: bytes) -> bytes:
        """*payload* for the client: the very bytes but for the model's name, if the envelope is whole."""
        if (
            chunk.model == self._model_in
            and chunk.id == self._id
            and chunk.created == self._created
            and chunk.object == CHUNK
            and (chunk.usage is _NULL or bytes(chunk.usage) == b"null")
            and all(choice.index is not UNSET and choice.delta is not None for choice in choices)
        ):
            before, model, after = payload.partition(self._model_in_json)
            if model and self._model_in_json not in after:
                return before + self._model_out_json + after
        return self._rewrite(payload)

    def _rewrite(
        self, payload: bytes, usage: dict[str, Any] | None = None, unfinished: set[int] | None = None
    ) -> bytes:
        """*payload* member by member: whole envelope, *usage* or none, every choice with index and delta."""
        members = _members.decode(payload)
        changes = self._envelope()
        if usage is not None:
            changes["usage"] = usage
        if "choices" in members:
            changes["choices"] = _whole_choices(members["choices"], unfinished or set())
        return replace_members(members, changes, drop=frozenset(() if usage is not None else ("usage",)))

    def _envelope(self) -> dict[str, Any]:
        return {"id": self._id, "object": CHUNK, "created": self._created, "model": self.journey.call.slug}

    def _chunk_of(self, delta: dict[str, Any], index: int) -> bytes:
        """A chunk of our own making."""
        return _encode({**self._envelope(), "choices": [{"index": index, "delta": delta, "finish_reason": None}]})

    def _metadata(self, receipt: Receipt) -> bytes:
        block = {"_anoman": extension(receipt)}
        if self.journey.rules.metadata_frame == "bare":
            return _encode(block)
        choices = [{"index": 0, "delta": {}, "finish_reason": None}]
        return _encode({**block, **self._envelope(), "object": METADATA, "choices": choices})

    def _watch_arguments(self, index: int, calls: list[_ToolCall]) -> None:
        for call in calls:
            place = (index, call.index)
            silent = not (call.function is not None and call.function.arguments)
            self._argumentless[place] = silent and self._argumentless.get(place, True)

    def _missing_arguments(self) -> list[tuple[int, dict[str, Any]]]:
        """A delta with `{}` for every tool call that got no argument text: "" is not JSON."""
        return [
            (choice, {"tool_calls": [{"index": tool, "function": {"arguments": "{}"}}]})
            for (choice, tool), silent in self._argumentless.items()
            if silent
        ]


def _index(choice: _Choice) -> int:
    return choice.index if choice.index is not UNSET else 0


def _text(delta: _Delta | None) -> str | None:
    """What *delta* adds to the answer; None when it adds nothing."""
    if delta is None:
        return None
    if delta.content and not delta.tool_calls:
        return delta.content
    parts = [delta.content, delta.reasoning_content or delta.reasoning, delta.refusal]
    for function in (delta.function_call, *(call.function for call in delta.tool_calls or ())):
        if function is not None:
            parts += (function.name, function.arguments)
    text = "".join(part for part in parts if part)
    if text:
        return text
    return "" if delta.audio is not None or delta.tool_calls else None


def _whole_choices(raw: Raw, unfinished: set[int]) -> Any:
    """Every choice with an index and a delta, and no finish reason for those in *unfinished*."""
    choices = _decode(raw)
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            choice.setdefault("index", 0)
            if choice.get("delta") is None:
                choice["delta"] = {}
            if choice.setdefault("finish_reason", None) is not None and choice["index"] in unfinished:
                choice["finish_reason"] = None
    return choices


def _lenient(payload: bytes) -> _Chunk:
    """
    *payload* as a chunk, whatever types its members have: what is not of the expected type counts as absent.

    Raises:
        msgspec.DecodeError: Not a JSON object.
    """
    members = _members.decode(payload)
    chunk = _Chunk(usage=members.get("usage", _NULL), error=members.get("error", _NULL))
    known = _decode(payload)
    for name, kind in (("id", str), ("object", str), ("created", int), ("model", str)):
        if isinstance(known.get(name), kind):
            setattr(chunk, name, known[name])
    if isinstance(known.get("choices"), list):
        chunk.choices = [_lenient_choice(choice) for choice in known["choices"] if isinstance(choice, dict)]
    return chunk


def _lenient_choice(choice: dict[str, Any]) -> _Choice:
    index, delta, reason = choice.get("index"), choice.get("delta"), choice.get("finish_reason")
    out = _Choice(finish_reason=reason if isinstance(reason, str) else None)
    if isinstance(index, int) and not isinstance(index, bool):
        out.index = index
    if isinstance(delta, dict):
        content = delta.get("content")
        if isinstance(content, list):  # some vendors stream parts
            content = "".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
        out.delta = _Delta(content=content if isinstance(content, str) else None)
        for name in ("role", "reasoning_content", "reasoning", "refusal"):
            if isinstance(delta.get(name), str):
                setattr(out.delta, name, delta[name])
        if isinstance(delta.get("tool_calls"), list):
            try:
                out.delta.tool_calls = msgspec.convert(delta["tool_calls"], list[_ToolCall], strict=False)
            except msgspec.ValidationError:
                out.delta.tool_calls = [_ToolCall()]
    return out
