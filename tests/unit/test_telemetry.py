"""The log as a whole: set-up, catalogue, recorders, libraries."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from gateway import telemetry
from gateway.linewriter import MAX_BYTES
from gateway.telemetry import EVENTS, LogRecorder, RefusalLog, Telemetry
from tests.unit.receipts import receipt


class Log:
    """A configured log and what was written to it."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()
        self.telemetry: Telemetry = telemetry.configure("json", "info", self.stream)

    def lines(self) -> list[dict[str, Any]]:
        """What was written, parsed and without time stamps; ends the writing."""
        self.telemetry.close()
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [{name: value for name, value in line.items() if name != "timestamp"} for line in lines]


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.telemetry.close()
    structlog.reset_defaults()


def test_both_loggers_write_to_the_same_place(log: Log) -> None:
    """The fast logger and structlog's own give the same lines, from the level on."""
    log.telemetry.log.info(telemetry.SERVER_STARTED, port=1)
    structlog.get_logger().info(telemetry.SERVER_STARTED, port=2)
    log.telemetry.log.debug("too.low")

    assert log.lines() == [{"level": "info", "event": "server.started", "port": port} for port in (1, 2)]


def test_level_is_a_threshold_for_receipts_too() -> None:
    """With the level at warning, a completed exchange leaves no line."""
    stream = io.BytesIO()
    log = telemetry.configure("json", "WARNING", stream)
    LogRecorder(log).record(receipt())
    LogRecorder(log).record(receipt(outcome="failed"))
    log.close()

    assert [json.loads(line)["outcome"] for line in stream.getvalue().splitlines()] == ["failed"]


def test_unknown_level_is_refused() -> None:
    """A misspelt level is an error at start, not silence later."""
    with pytest.raises(KeyError):
        telemetry.configure("json", "loud", io.BytesIO())


def test_console_format() -> None:
    """The format for people goes through the same set-up."""
    stream = io.BytesIO()
    log = telemetry.configure("console", "info", stream)
    log.log.info(telemetry.SERVER_STARTED, port=1)
    log.close()

    assert stream.getvalue().endswith(b" info     server.started port=1\n")


def test_catalogue_is_well_formed() -> None:
    """Every event is named noun.past_tense or the like, has a level and a sentence, and is a constant of the module."""
    words = (value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str))
    constants = {value for value in words if value in EVENTS}

    assert constants == set(EVENTS)
    assert all(re.fullmatch(r"[a-z]+\.[a-z_]+", name) for name in EVENTS)
    assert all(event.level in ("info", "warning", "error") and event.meaning.endswith(".") for event in EVENTS.values())


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        ("completed", "info"),
        ("cancelled", "info"),
        ("rejected", "info"),
        ("interrupted", "warning"),
        ("failed", "warning"),
    ],
)
def test_one_line_per_receipt(log: Log, outcome: str, level: str) -> None:
    """A settled exchange is one line with the receipt's fields; its level says whether we had to recover."""
    LogRecorder(log.telemetry).record(receipt(outcome=outcome))
    lines = log.lines()

    assert len(lines) == 1
    assert {name: lines[0][name] for name in ("event", "level", "outcome", "cost_usd", "attempts")} == {
        "event": "exchange.settled",
        "level": level,
        "outcome": outcome,
        "cost_usd": "0.000041",
        "attempts": ["azure/gpt-x:failed", "openai/gpt-x:ok"],
    }


def test_flood_of_refusals_is_a_few_lines(log: Log) -> None:
    """Of a thousand equal bad requests five are lines; the end tells of the others."""
    refusals = RefusalLog(log.telemetry.log, lambda: 1.0)
    for _ in range(1000):
        refusals.write("bad_host", peer="198.51.100.7")
    refusals.write("too_large")
    refusals.flush()
    lines = log.lines()

    assert [(line["reason"], line.get("suppressed")) for line in lines] == [
        *[("bad_host", None)] * 5, ("too_large", None), ("bad_host", 995),
    ]
    assert {(line["event"], line["level"]) for line in lines} == {("request.refused", "info")}


def test_library_lines_are_ours(log: Log) -> None:
    """A library's warning is a JSON line with its first line, cleaned; what is below warning is left out."""
    logging.getLogger("asyncio").warning("slow %s\nsecond line", "Bearer canary")
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("other").log(35, "between")

    assert log.lines() == [
        {"level": "warning", "event": "library.reported", "logger": "asyncio", "message": "slow ***"},
        {"level": "warning", "event": "library.reported", "logger": "other", "message": "between"},
    ]


def test_library_line_with_wrong_arguments_is_survived(log: Log) -> None:
    """A library's own formatting mistake costs its arguments, not the line."""
    ours = next(handler for handler in logging.getLogger().handlers if type(handler).__module__ == telemetry.__name__)
    ours.handle(logging.LogRecord("aiohttp.client", logging.ERROR, "", 0, "odd %d", ("argument",), None))

    assert log.lines() == [
        {"level": "error", "event": "library.reported", "logger": "aiohttp.client", "message": "odd %d"},
    ]


@pytest.mark.parametrize("name", ["aiohttp.server", "aiohttp.web", "aiohttp.access"])
def test_http_libraries_quote_no_request(log: Log, name: str) -> None:
    """Of the HTTP server's own errors only the type and the place remain, since their words quote headers."""
    try:
        raise ValueError("bad header x-odd canary")
    except ValueError as exc:
        logging.getLogger(name).exception("Error handling request from %s: canary", "peer", exc_info=exc)
    lines = log.lines()

    assert "canary" not in json.dumps(lines)
    assert (lines[0]["logger"], lines[0]["exception"][0]["type"], "message" in lines[0]) == (
        name, "ValueError", False,
    )


def test_library_floods_are_limited(log: Log) -> None:
    """A library that repeats itself gets a few lines, and one that tells of the others when the log is flushed."""
    for _ in range(500):
        logging.getLogger("aiohttp.server").error("again")
    log.telemetry.flush_libraries()
    log.telemetry.flush_libraries()
    *lines, last = log.lines()

    assert 5 <= len(lines) <= 10  # 5 per second, and the second may turn meanwhile
    suppressed = sum(line.get("suppressed", 0) for line in lines)
    assert last == {
        "level": "error", "event": "library.reported", "logger": "aiohttp.server",
        "suppressed": 500 - len(lines) - suppressed,
    }  # fmt: skip


async def test_forgotten_exception_reaches_the_log(log: Log) -> None:
    """What the event loop complains of is a line of ours."""
    asyncio.get_running_loop().call_exception_handler(
        {"message": "Task exception was never retrieved", "exception": ValueError("boom")}
    )
    lines = log.lines()

    assert [(line["level"], line["message"], line["exception"][0]["message"]) for line in lines] == [
        ("error", "Task exception was never retrieved", "boom"),
    ]


def test_close_gives_libraries_their_handlers_back() -> None:
    """After `close` the standard library logs as it did before."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    log = telemetry.configure("json", "info", io.BytesIO())
    during = root.handlers[:]
    log.close()

    assert (root.handlers, root.level) == before
    assert during != before[0]


CRASH = """
import sys
from gateway import telemetry
log = telemetry.configure("json", "info", sys.stdout).log
log.error(telemetry.INTERNAL_ERROR, last="words")
raise SystemExit(7)
"""


def test_last_words_of_a_crash_are_written() -> None:
    """A process that ends without closing its log still writes what was queued."""
    done = subprocess.run([sys.executable, "-c", CRASH], capture_output=True, timeout=30, check=False)

    assert (done.returncode, json.loads(done.stdout)["last"], done.stderr) == (7, "words", b"")


def test_dropped_lines_are_told_of_and_counted() -> None:
    """A line that the queue cannot take is counted at once, and the log says so later."""
    stream, drops = io.BytesIO(), list[int]()
    log = telemetry.configure("json", "info", stream, on_drop=drops.append)
    log.writer.write(b"x" * (MAX_BYTES + 1))
    log.close()
    line = json.loads(stream.getvalue())

    assert (drops, line["event"], line["level"], line["lines"]) == ([1], "log.dropped", "warning", 1)
