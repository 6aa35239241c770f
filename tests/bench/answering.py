"""
What guards of answers cost: `python -m tests.bench.answering`.

One gateway with a key for each mode; the same streams with each key in turn, round by round, and CPU of its process per
event that the provider sends. Events have a word or a part of one, as models say them. Goal: at most x1.25 of the key
without guards. Prints both dialects, paced (an event every 20 ms) and flat out, and the lanes alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path

from gateway.core.guarding import AnswerTerms, GuardMode
from gateway.dialects.base import Lane
from gateway.dialects.edited import TEXT_EDITORS, EditedLane
from gateway.guards.screen import Screen
from gateway.guards.sieve import make_eyes
from gateway.guards.table import make_engines
from tests.bench.processes import Program, free_port
from tests.support.config import standard, toml
from tests.support.notation import CBD, CBS, MS, R, T
from tests.unit.dialects.conversations import anthropic, openai

MODES: tuple[GuardMode, ...] = ("off", "monitor", "redact")
GUARDS = frozenset(("pii", "content", "credentials"))
TEXT = (
    "Tentu, berikut ringkasan laporan yang diminta. The figures of the third quarter are slightly better than those of "
    "the second one, mainly because deliveries took less time; details follow below, step by step. "
)
PIECES = [TEXT[at : at + 4] for at in range(0, len(TEXT), 4)]
EVENTS, BOOT_S = 400, 20.0


def events(dialect: str, count: int) -> list[bytes]:
    """The content events of a stream."""
    pieces = islice(cycle(PIECES), count)
    return [T(piece) if dialect == "openai" else CBD(0, piece) for piece in pieces]


# -- the lanes alone --


def lane_us(dialect: str, mode: GuardMode, rounds: int = 7) -> float:
    """Microseconds per event of a lane, the best of several runs."""
    opening = R() if dialect == "openai" else MS(7) + CBS(0)
    stream, best = events(dialect, 4000), float("inf")
    engines = [engine for name, engine in make_engines().items() if name in GUARDS]
    for _ in range(rounds):
        lane: Lane = openai() if dialect == "openai" else anthropic()
        if mode != "off":
            screen = Screen(make_eyes(engines, mode, {}), AnswerTerms(mode), {})
            editor = TEXT_EDITORS["openai_chat" if dialect == "openai" else "anthropic_messages"](screen)
            lane = EditedLane(lane, (editor,))
        feed = lane.feed
        feed(opening)
        begun_s = time.process_time()
        for event in stream:
            feed(event)
        best = min(best, (time.process_time() - begun_s) / len(stream))
    return best * 1e6


# -- the running gateway --


class Provider:
    """Says the same to whoever asks, an event at a time."""

    def __init__(self) -> None:
        self.interval_s = 0.0
        self._bodies = {"openai": events("openai", EVENTS), "anthropic": events("anthropic", EVENTS)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                await reader.readexactly(length)
                await self._answer(writer, "openai" if b"/chat/completions" in head else "anthropic")

    async def _answer(self, writer: asyncio.StreamWriter, dialect: str) -> None:
        def send(data: bytes) -> None:
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))

        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        send(R() if dialect == "openai" else MS(7) + CBS(0))
        for event in self._bodies[dialect]:
            send(event)
            await asyncio.sleep(self.interval_s)
            await writer.drain()
        send(_ending(dialect))
        writer.write(b"0\r\n\r\n")


def _ending(dialect: str) -> bytes:
    if dialect == "openai":
        finish = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        choice = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return b"data: %b\n\ndata: [DONE]\n\n" % json.dumps({**finish, "choices": [choice]}).encode()
    said = [
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(one["type"]).encode(), json.dumps(one).encode()) for one in said)


async def ask(port: int, dialect: str, mode: GuardMode) -> None:
    """One stream, to its end."""
    body = {"model": "m" if dialect == "openai" else "claude", "max_tokens": 4096, "stream": True}
    payload = json.dumps({**body, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    path = "/v1/chat/completions" if dialect == "openai" else "/anthropic/v1/messages"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer anm-sk-bench-{mode}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(payload)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + payload)
    answer = await reader.read(-1)
    writer.close()
    if b" 200 " not in answer[:20] or not answer.endswith(b"0\r\n\r\n"):
        raise RuntimeError(answer[:300])


def configuration(upstream: str) -> str:
    """A gateway with a key for each mode."""
    config = standard(upstream)
    for section in ("stream", "server"):
        del config[section]
    config["server"] = {"region": "id"}
    have = [name for name in make_engines() if name in GUARDS]
    terms = {mode: {"guardrails": {"response_content": {"mode": mode, "guards": have}}} for mode in MODES}
    config["policies"] = terms
    config["keys"] = {
        f"anm-sk-bench-{mode}": {"tenant": "bench", "tier": "enterprise", "policy": mode} for mode in MODES
    }
    return toml(config)


async def measure(port: int, program: Program, work: tuple[str, GuardMode], streams: int) -> float:
    """Microseconds of CPU per event of so many streams at once."""
    program.refresh()
    before_s = program.cpu_s()
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(ask(port, *work))
    return (program.cpu_s() - before_s) * 1e6 / (streams * EVENTS)


async def compare(port: int, program: Program, dialect: str, streams: int, rounds: int) -> dict[GuardMode, list[float]]:
    """Each mode in turn, round by round."""
    found: dict[GuardMode, list[float]] = {mode: [] for mode in MODES}
    for _ in range(rounds):
        for mode in MODES:
            found[mode].append(await measure(port, program, (dialect, mode), streams))
    return found


def report(name: str, found: dict[GuardMode, list[float]]) -> None:
    """One line: the median of each mode, and that of its ratio within a round."""
    plain = found["off"]
    parts = [f"off {statistics.median(plain):6.1f} us"]
    for mode in MODES[1:]:
        ratio = statistics.median([one / other for one, other in zip(found[mode], plain, strict=True)])
        parts.append(f"{mode} {statistics.median(found[mode]):6.1f} us, x{ratio:.2f}")
    print(f"{name:24} {'   '.join(parts)}", flush=True)


async def run(rounds: int) -> None:
    """The whole table."""
    provider = Provider()
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    upstream, port = server.sockets[0].getsockname()[1], free_port()
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "gateway.toml"
        path.write_text(configuration(f"http://127.0.0.1:{upstream}"))
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(path), "--port", str(port)]
        env = {**os.environ, "DATABASE_URL": f"sqlite:///{home}/bench.db", "PYTHONPATH": os.getcwd()}
        program = Program(command, core=0, env=env, log=Path(home) / "log")
        try:
            if not await program.listening(port, BOOT_S):
                raise RuntimeError(program.last_words())
            for dialect in ("openai", "anthropic"):
                await measure(port, program, (dialect, "redact"), 4)
                for name, interval_s, streams in (("flat out", 0.0, 16), ("paced", 0.02, 60)):
                    provider.interval_s = interval_s
                    report(f"{dialect} {name}", await compare(port, program, dialect, streams, rounds))
        finally:
            program.stop()
            server.close()


def main(arguments: Sequence[str]) -> None:
    """The lanes first, then the gateway; the number of rounds is the one argument."""
    lanes: Callable[[str, GuardMode], float] = lane_us
    for dialect in ("openai", "anthropic"):
        report(f"{dialect} lane alone", {mode: [lanes(dialect, mode)] for mode in MODES})
    asyncio.run(run(int(arguments[0]) if arguments else 5))


if __name__ == "__main__":
    main(sys.argv[1:])
