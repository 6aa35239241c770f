"""What every dialect can say, said once: for exchanges whose two ends speak different ones.

A dialect of clients reads its calls into a `Prompt` and writes its answers from events; a dialect of providers writes a
`Prompt` as its own body and reads its answers into events. Where both ends speak the same, none of this is used.

Numbers that nobody here counts with (temperature and the like) stay the literal that was sent, as `Raw`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Raw, Struct

from gateway.dialects.traits import PLAIN, Traits
from gateway.wire.sse import Event

# -- what is asked --

PDF = "application/pdf"


class Text(Struct, frozen=True, gc=False):
    """A piece of text, never empty. `cache` is a prompt-caching marker in Anthropic's form, read by `decode_values`."""

    text: str
    cache: Any = None


class Image(Struct, frozen=True, gc=False):
    """A picture: either a public `url`, or `data` in base64 with its `media_type`. `detail` is OpenAI's."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    detail: str | None = None
    cache: Any = None


class Document(Struct, frozen=True, gc=False):
    """A PDF or a plain text: a public `url`, or `data` (base64 where `media_type` is `application/pdf`, else text)."""

    url: str | None = None
    media_type: str | None = None
    data: str | None = None
    name: str | None = None
    cache: Any = None


class Thinking(Struct, frozen=True, gc=False):
    """Reasoning that the model gave earlier. `redacted` is a provider's ciphertext instead of text and signature."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None


class ToolCall(Struct, frozen=True, gc=False):
    """`arguments` is the JSON text of an object, never empty."""

    id: str
    name: str
    arguments: str
    cache: Any = None


class ToolResult(Struct, frozen=True, gc=False):
    """What a tool gave back for the call with `call_id`."""

    call_id: str
    parts: tuple[Text | Image | Document, ...]
    is_error: bool = False
    cache: Any = None


Part = Text | Image | Document | Thinking | ToolCall | ToolResult


class Message(Struct, frozen=True):
    """One turn. `place` names it for refusals and notes, as in `messages[3]`.

    `places` names each of `parts` likewise, where a dialect tells them apart; see `place_of`. A user's turn has texts,
    images, documents and tool results; the assistant's has texts, thinking and tool calls, and images that it drew.
    Neighbours may have the same role.
    """

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]
    place: str
    name: str | None = None
    places: tuple[str, ...] = ()

    def place_of(self, position: int) -> str:
        """What the client calls the part at *position*."""
        return self.places[position] if position < len(self.places) else self.place


class Aside(Struct, frozen=True, gc=False):
    """Where in a conversation an instruction stood: behind the first *turns* messages, at the client's *place*."""

    turns: int
    place: str


class Tool(Struct, frozen=True, gc=False):
    """A function that the model may call. `parameters` is its JSON schema, untouched; None where there is none."""

    name: str
    description: str | None = None
    parameters: Raw | None = None
    strict: bool | None = None
    cache: Any = None


class ToolChoice(Struct, frozen=True, gc=False):
    """`name` is given exactly where `mode` is `tool`."""

    mode: Literal["auto", "none", "required", "tool"]
    name: str | None = None


class ResponseFormat(Struct, frozen=True, gc=False):
    """What the text of the answer has to be: some JSON object, or JSON after a schema."""

    kind: Literal["json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema: Raw | None = None
    strict: bool | None = None


class Reasoning(Struct, frozen=True, gc=False):
    """How much to think: an effort by name, a budget in tokens, both unknown (`adaptive`), or not at all (`off`)."""

    mode: Literal["effort", "budget", "adaptive", "off"]
    effort: str | None = None
    budget_tokens: int | None = None


class Prompt(Struct, frozen=True):
    """A call, understood.

    Attributes:
        names: The client's name for each neutral member that it set, as in `{"stop": "stop_sequences"}`; also for those
            in `others`, which have the same name on both sides. It is what notes and refusals speak of.
        system: Instructions, in order, wherever in the call they stood.
        moved: For those at the end of `system` that stood behind the first turn: where, and how many turns before
            them. A target that takes instructions in front only notes their places.
        stop: Texts that end the answer; possibly empty or blank ones, as sent.
        sampling: Numbers by neutral name: `temperature`, `top_p`, `top_k`, `min_p`, `frequency_penalty`,
            `presence_penalty`, `repetition_penalty`, `seed`.
        parallel_tools: Whether several tools may be called in one turn; None where nothing was said.
        betas: Names of features that the client wants beyond its dialect's version: what hosts of the same models take.
        others: Members without a neutral name, untouched: a target passes on those it knows and notes the rest.
        translated: Places that took another form as they were read; a target begins its notes with them.
        dropped: Places that no other dialect has a form for, likewise.
    """

    messages: tuple[Message, ...]
    names: Mapping[str, str]
    system: tuple[Text, ...] = ()
    moved: tuple[Aside, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Mapping[str, Raw] = {}
    n: int = 1
    response_format: ResponseFormat | None = None
    reasoning: Reasoning | None = None
    user: str | None = None
    betas: tuple[str, ...] = ()
    others: Mapping[str, Raw] = {}
    translated: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


MAX_NOTES = 64  # of a kind: a sane call earns a handful, and a body has room for 60,000 members that nobody knows
MAX_NOTE_CHARS = 128  # they hold the client's own keys, and leave in every answer


class Notes:
    """What became of a call on its way into another dialect, in the client's words.

    Attributes:
        translated: Members that say the same in another form.
        dropped: Members, or places in messages, that the target cannot take.
        tools: Tools that go by another name there, see `Params`.

    The first two are bounded, in number and in length.
    """

    def __init__(self) -> None:
        self.translated: list[str] = []
        self.dropped: list[str] = []
        self.tools: dict[str, str | None] = {}

    def translate(self, name: str) -> None:
        """Note *name*, once."""
        _note(self.translated, name)

    def drop(self, name: str) -> None:
        """Note *name*, once."""
        _note(self.dropped, name)

    def begin(self, prompt: Prompt) -> None:
        """Note what became of *prompt* as it was read."""
        for name in (*prompt.translated, *(aside.place for aside in prompt.moved)):
            self.translate(name)
        for name in prompt.dropped:
            self.drop(name)


def _note(notes: list[str], name: str) -> None:
    if len(notes) < MAX_NOTES and name[:MAX_NOTE_CHARS] not in notes:
        notes.append(name[:MAX_NOTE_CHARS])


# -- what is answered --


class Begin(Struct, frozen=True, gc=False):
    """The answer begins; `id` is the provider's."""

    id: str | None = None


class Said(Struct, frozen=True, gc=False):
    """More text of the answer."""

    text: str


class Refused(Struct, frozen=True, gc=False):
    """More text of a refusal, where a provider keeps it apart from the answer's."""

    text: str


class Thought(Struct, frozen=True, gc=False):
    """More reasoning. `signature` and `redacted` come whole, and with the end of the reasoning that they belong to."""

    text: str = ""
    signature: str | None = None
    redacted: str | None = None


class Called(Struct, frozen=True, gc=False):
    """
    The model begins to call a tool. `slot` counts the calls of the answer from 0.

    A reader leaves `id` empty where its provider tells none; `Retold` makes one.
    """

    slot: int
    id: str
    name: str


class Argued(Struct, frozen=True, gc=False):
    """More of the JSON text of a call's arguments; nothing at all comes where there are none."""

    slot: int
    text: str


class Cited(Struct, frozen=True):
    """Where the text just said comes from: a citation in Anthropic's form, read by `decode_values`.

    `chars` is the length of that text; 0 where it is unknown.
    """

    citation: Any
    chars: int = 0


class Pictured(Struct, frozen=True, gc=False):
    """A picture that the model made, whole: `data` in base64."""

    media_type: str
    data: str


class Likely(Struct, frozen=True, gc=False):
    """A token, and the logarithm of its probability as its provider spelled it."""

    token: str
    logprob: Raw


class Scored(Struct, frozen=True):
    """How likely the tokens just said were, each with the alternatives to it."""

    tokens: tuple[tuple[Likely, tuple[Likely, ...]], ...]


class Other(Struct, frozen=True):
    """What another answer than the first says, where several were asked for; `index` counts from 1."""

    index: int
    event: AnswerEvent


Reason = Literal["stop", "stop_sequence", "length", "context_window", "tool_calls", "refusal", "pause"]


class Finished(Struct, frozen=True, gc=False):
    """The model has stopped. `said` is the provider's own word where it is none that we know."""

    reason: Reason
    stop_sequence: str | None = None
    said: str | None = None


class Counted(Struct, frozen=True, gc=False):
    """Tokens as counted so far; None of a field means that the provider has not told it."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_1h_tokens: int | None = None


class Running(Counted, frozen=True, gc=False):
    """Tokens of an answer that goes on, for the books should it break. It is no news for clients, who hear the last."""


AnswerEvent = (
    Begin
    | Said
    | Refused
    | Thought
    | Called
    | Argued
    | Cited
    | Pictured
    | Scored
    | Finished
    | Counted
    | Running
    | Other
)


class Target(Struct, frozen=True, gc=False):
    """What a body is written for.

    Attributes:
        model: The provider's own name for the model.
        max_output_tokens: The model's limit, where the catalogue has it.
        omits: Members that the provider must not be sent, see `Provider`.
    """

    model: str
    stream: bool
    max_output_tokens: int | None = None
    traits: Traits = PLAIN
    omits: frozenset[str] = frozenset()


class Reader(Protocol):
    """What a provider says, understood.

    Attributes:
        complete: The model has stopped, by all that its provider has said so far: while that stands no failure spoils
            the answer. Where the provider has no terminal marker, more of the answer takes it back.
        ended: The provider's own terminal marker is here: nothing of use can follow.
        progress: Counts events that moved the answer on, also those that say nothing which there is an event for here.
        note: Something odd that did not spoil the answer, for the log.
    """

    complete: bool
    ended: bool
    progress: int
    note: str | None

    def take(self, event: Event) -> Sequence[AnswerEvent]:
        """
        What *event* says, but for how the model stopped, which the next event could take back.

        Raises:
            UpstreamFailed: An error of the provider, or nothing intelligible.
        """

    def close(self) -> None:
        """The body has ended as it should: an answer may be `complete` by that."""

    def end(self) -> Sequence[AnswerEvent]:
        """The last words of a `complete` answer: `Finished`, and a last `Counted`. Called once."""

    def whole(self, body: bytes) -> Sequence[AnswerEvent]:
        """
        A whole JSON answer, last words included.

        Raises:
            UpstreamFailed: An error of the provider, or no answer.
        """


class Writer(Protocol):
    """An answer in a client's dialect, as a provider of that dialect would send it to us.

    Attributes:
        note: What the dialect had no form for, for the log.
    """

    @property
    def note(self) -> str | None: ...

    def write(self, event: AnswerEvent) -> bytes:
        """*event* as frames of a stream; b"" where the dialect has nothing to say."""

    def end(self) -> bytes:
        """The end of the stream behind the last event, terminal marker included."""

    def whole(self, events: Iterable[AnswerEvent]) -> bytes:
        """All of an answer as one JSON body."""
