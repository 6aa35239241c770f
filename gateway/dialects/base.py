"""What a dialect is: a row of pure functions over bytes and facts, and the two shapes an answer can have.

Some dialects only providers speak. So a row has what their side needs, and one of clients has the clients' besides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from msgspec import Raw, Struct

from gateway.core.call import Call, CallOptions
from gateway.core.catalog import DialectName, Path, Route
from gateway.core.errors import Failure
from gateway.core.receipt import Receipt
from gateway.core.usage import Basis, Usage
from gateway.core.verdicts import NO_VERDICTS, Verdicts
from gateway.dialects.called import Called
from gateway.dialects.families import ANY_FAMILY, Family
from gateway.dialects.neutral import Notes, Prompt, Reader, Target, Writer
from gateway.dialects.pictures import Pictures
from gateway.dialects.tool_names import USUAL
from gateway.guards.screen import Screen
from gateway.wire.sse import FrameSplitter, Splitter


@dataclass(frozen=True, slots=True)
class LaneRules:
    """Bounds and choices that every lane obeys.

    Attributes:
        max_event_bytes: The longest upstream event taken; a longer one fails the stream.
        sniff_bytes: How much may be held back before the first good frame.
        metadata_frame: `chunk`, a superset that every SDK accepts, or `bare`, the documents' literal form.
        region: The gateway's region.
    """

    max_event_bytes: int = 1024 * 1024
    sniff_bytes: int = 64 * 1024
    metadata_frame: Literal["chunk", "bare"] = "chunk"
    region: str = "id"


class Journey(Struct, frozen=True):
    """
    Where a lane runs: the call, the route that serves it, and the id clients know it by.

    Attributes:
        family: The model's, for our own counts.
        tools: Tools that go by another name at the provider, see `Params`.
        verdicts: What guards said of the call.
    """

    call: Call
    route: Route
    request_id: str
    created_epoch_s: int
    rules: LaneRules
    family: Family = ANY_FAMILY
    tools: Mapping[str, str | None] = {}
    verdicts: Verdicts = NO_VERDICTS


class Lane(Protocol):
    """One upstream stream on its way to the client: bytes in, whole frames out. Pure and synchronous.

    Attributes:
        started: The first content event was seen and is good; output flows from then on.
        complete: The dialect's terminal marker was seen; nothing that follows can turn the answer into a failure.
        ended: Nothing more of use can come from the upstream.
        failure: Set when the upstream said or did something that ends the stream.
        progress: Counts events that moved the answer on; comments and pings do not.
        talking: A piece of content has been seen (first token), though it may be held back yet.
        note: Something odd that did not spoil the answer, for the log.
        response_id: What the client knows the answer by, cleaned; None before it has begun.
    """

    note: str | None

    @property
    def response_id(self) -> str | None: ...

    @property
    def started(self) -> bool: ...

    @property
    def complete(self) -> bool: ...

    @property
    def ended(self) -> bool: ...

    @property
    def failure(self) -> Failure | None: ...

    @property
    def progress(self) -> int: ...

    @property
    def talking(self) -> bool: ...

    @property
    def deltas(self) -> int:
        """Pieces of content so far: no more than there are tokens, and known without counting any."""

    def feed(self, data: bytes) -> bytes:
        """Whole client frames for *data*; b"" while the start is still held back."""

    def end(self) -> bytes:
        """The upstream's body is over: what was still unfinished, and `failure` if the answer is not complete."""

    def fail(self, failure: Failure, receipt: Receipt) -> bytes:
        """The frames that tell the client of *failure* and of what had come by then, and end the stream."""

    def finish(self, receipt: Receipt) -> bytes:
        """The held-back finish, the metadata and the terminator."""

    def last_words(self) -> bytes:
        """Of a complete answer, what else it says before its end, which `finish` says no more then."""

    def measure(self) -> tuple[Usage, Basis]:
        """What was used, by the provider's own count where there is one and by ours where not."""

    def received_tokens(self) -> int:
        """Tokens of the answer so far, by whichever count has more. Cheaper than `measure`: no prompt is counted."""


class Completion(Protocol):
    """A whole JSON answer of an upstream; `response_id` as in `Lane`."""

    usage: Usage
    basis: Basis
    note: str | None
    response_id: str | None

    def pass_through(self, screen: Screen) -> None:
        """
        Have its texts pass *screen*: what is rendered is what leaves of them.

        Raises:
            UpstreamFailed: It has what cannot be written again.
        """

    def calls(self) -> Iterable[Called]:
        """The calls of tools in it. Raises one of UNREADABLE for what is none."""

    def render(self, receipt: Receipt) -> bytes:
        """The client's body: the upstream's, with our model name, whole usage and `_anoman`."""


def fixed_path(path: str) -> Path:
    """The path of dialects that name the model, and whether a stream is wanted, in the body."""

    def upstream_path(model: str, *, stream: bool) -> str:
        return path

    return upstream_path


@dataclass(frozen=True, slots=True)
class Counting:
    """
    How a dialect asks for the tokens of a prompt, as data.

    Attributes:
        path: Where clients of the gateway ask for it.
        upstream_path: Appended to a provider's base URL.
        read_call: A client's body. Raises GatewayError (400) naming the field.
        read_count: A provider's answer as its members. Raises UpstreamFailed when it has no count.
        write_count: What the client gets for a provider's members, or for a number of ours.
    """

    path: str
    upstream_path: str
    read_call: Callable[[bytes, CallOptions, tuple[tuple[str, str], ...]], Call]
    read_count: Callable[[bytes], dict[str, Raw]]
    write_count: Callable[[Call, dict[str, Raw] | int, Basis], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One language as providers speak it, as data.

    Attributes:
        upstream_path: Appended to a provider's base URL.
        default_headers: Sent when the client did not send them, names in lower case.
        stream_type: The media type of a stream, to ask for one.
        write_body: The body that asks a provider of this dialect for a call of another one. Raises GatewayError (400)
            naming what cannot be left out.
        open_splitter: Takes a stream apart; its argument is the longest event in bytes.
        open_reader: What a provider says, for a client of another dialect; its argument is how many answers were asked
            for.
        tool_names: What names of tools look like; a translated call's others are replaced.
        read_failure: What an answer that is no 200 means: its status, headers, body (`MAX_ERROR_BYTES` at most) and the
            time by the wall clock.
    """

    name: DialectName
    upstream_path: Path
    default_headers: tuple[tuple[str, str], ...] = ()
    stream_type: str = "text/event-stream"
    write_body: Callable[[Prompt, Target, Notes], bytes]
    open_splitter: Callable[[int], Splitter] = FrameSplitter
    open_reader: Callable[[int], Reader]
    tool_names: re.Pattern[str] = USUAL
    read_failure: Callable[[int, Mapping[str, str], bytes, float], Failure]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDialect(Dialect):
    """One that clients speak as well.

    Attributes:
        path: Where clients of the gateway ask for it.
        heartbeat: A frame that means nothing, to keep a connection warm.
        read_call: A client's body as a `Call`. Raises GatewayError (400) naming the field.
        tidy: What no provider of this dialect takes, taken out of the members of a client's body; it is noted where it
            says anything.
        upstream_body: The body of those members that asks a provider of this dialect.
        open_lane: For a client and a provider of this dialect.
        read_completion: A JSON body of a provider for a client, both of this dialect. Raises UpstreamFailed when it is
            none.
        read_prompt: A client's call for a provider of another dialect. Raises GatewayError (400) naming the place.
        open_writer: What a client hears of a provider of another dialect.
        pictures: Those of a client's call.
        counting: None where the dialect has no word for it.
    """

    path: str
    heartbeat: bytes
    read_call: Callable[[bytes, CallOptions, tuple[tuple[str, str], ...]], Call]
    tidy: Callable[[Mapping[str, Raw], Target, Notes], Mapping[str, Raw]]
    upstream_body: Callable[[Mapping[str, Raw], Target], bytes]
    open_lane: Callable[[Journey], Lane]
    read_completion: Callable[[bytes, Journey], Completion]
    read_prompt: Callable[[Call], Prompt]
    open_writer: Callable[[Journey], Writer]
    pictures: Pictures
    counting: Counting | None = None
