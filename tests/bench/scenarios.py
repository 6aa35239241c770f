"""What is measured: loads with one unit of work each, latencies, silent streams, and six ways to leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from .cancelling import Leaving
from .client import ABROAD
from .frames import Script
from .load import Plan
from .metronome import INTERVAL_MS

Group = Literal["json", "frames", "translated", "short", "latency", "memory", "cancel"]
GROUPS: tuple[Group, ...] = ("json", "frames", "translated", "short", "latency", "memory", "cancel")

TRANSLATED_GOAL = 2.0  # of the bare proxy, which passes the same client's dialect on as it is
_ENDLESS = 1_000_000  # events: longer than any window
_FLAT_OUT_EVENTS = 1000  # set-up is then 1/1000 of a stream per frame


@dataclass(frozen=True, slots=True)
class Work:
    """A load whose CPU is divided by what it got done."""

    name: str
    title: str
    group: Group
    plan: Plan
    unit: Literal["requests", "frames", "streams"]
    goal_ratio: float | None = None


JSON = Plan(Script(size=20), users=32)
PACED = Script(events=_ENDLESS, interval_ms=INTERVAL_MS)
FLAT_OUT = Script(events=_FLAT_OUT_EVENTS)

WORKS = (
    Work("json", "JSON request, 1 KB in, 0.4 KB out, 32 connections", "json", JSON, "requests", 1.5),
    Work("paced_openai", "frame, OpenAI, 100 streams x 50/s", "frames", Plan(PACED, 100, stream=True), "frames", 1.3),
    Work(
        "paced_anthropic",
        "frame, Anthropic, 100 streams x 50/s",
        "frames",
        Plan(PACED, 100, "anthropic", stream=True),
        "frames",
        1.3,
    ),
    Work("flat_openai", "frame, OpenAI, 16 streams flat out", "frames", Plan(FLAT_OUT, 16, stream=True), "frames", 1.3),
    Work(
        "flat_anthropic",
        "frame, Anthropic, 16 streams flat out",
        "frames",
        Plan(FLAT_OUT, 16, "anthropic", stream=True),
        "frames",
        1.3,
    ),
    Work(
        "paced_to_openai",
        "translated frame for an OpenAI client, 100 streams x 50/s",
        "translated",
        Plan(PACED, 100, stream=True, model=ABROAD["openai"]),
        "frames",
        TRANSLATED_GOAL,
    ),
    Work(
        "paced_to_anthropic",
        "translated frame for an Anthropic client, 100 streams x 50/s",
        "translated",
        Plan(PACED, 100, "anthropic", stream=True, model=ABROAD["anthropic"]),
        "frames",
        TRANSLATED_GOAL,
    ),
    Work(
        "flat_to_openai",
        "translated frame for an OpenAI client, 16 streams flat out",
        "translated",
        Plan(FLAT_OUT, 16, stream=True, model=ABROAD["openai"]),
        "frames",
        TRANSLATED_GOAL,
    ),
    Work(
        "flat_to_anthropic",
        "translated frame for an Anthropic client, 16 streams flat out",
        "translated",
        Plan(FLAT_OUT, 16, "anthropic", stream=True, model=ABROAD["anthropic"]),
        "frames",
        TRANSLATED_GOAL,
    ),
    Work("short", "whole stream of 4 events", "short", Plan(Script(events=4), 16, stream=True), "streams"),
)

WARM_UPS = (
    Plan(Script(size=20), 8),
    Plan(Script(), 8, stream=True),
    Plan(Script(size=20), 8, "anthropic"),
    Plan(Script(), 8, "anthropic", stream=True),
    Plan(Script(), 8, stream=True, model=ABROAD["openai"]),
    Plan(Script(), 8, "anthropic", stream=True, model=ABROAD["anthropic"]),
)

# 200 requests a second, 200 frames a second: latency without queues
LATENCY_JSON = Plan(Script(size=20), users=8, period_s=0.04, timed=True)
LATENCY_STREAM = Plan(Script(events=10, interval_ms=INTERVAL_MS), users=4, stream=True, timed=True)

_FLOWING = Leaving(
    Script(events=1000, interval_ms=INTERVAL_MS),
    stream=True,
    after_frames=3,
    wait_s=(0.006, 0.008),  # two thirds of an interval before the next event: noticing by writing would show 13 ms
)
_SOON_S = (0.02, 0.08)


@dataclass(frozen=True, slots=True)
class Column:
    """One state of an exchange in which clients leave, with what else goes on meanwhile."""

    name: str
    title: str
    leaving: Leaving
    background: Plan | None = None


COLUMNS = (
    Column("flowing", "mid-stream, 20 ms events", _FLOWING),
    Column(
        "before_first",
        "silent before the first token",
        Leaving(Script(events=10, first_ms=20_000), stream=True, after_frames=0, wait_s=_SOON_S),
    ),
    Column(
        "stalled",
        "silent for 5 s after the first token",
        Leaving(Script(events=10, interval_ms=5_000), stream=True, after_frames=1, wait_s=_SOON_S),
    ),
    Column("others", "mid-stream + 2,500 frames/s of others", _FLOWING, Plan(PACED, 50, stream=True)),
    Column("saturated", "mid-stream + saturating JSON", _FLOWING, Plan(Script(size=20), 16)),
    Column("json", "JSON request", Leaving(Script(first_ms=20_000), stream=False, after_frames=0, wait_s=_SOON_S)),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how often. Fewer than five CPU rounds are for development: single rounds differ by 1.5 x."""

    cpu_rounds: int
    cpu_s: float
    latency_rounds: int
    latency_s: float
    memory_streams: tuple[int, ...]
    cancel_rounds: int
    cancel_s: float


FULL = Effort(5, 1.5, 3, 3.0, (1000, 5000), 2, 2.0)
QUICK = Effort(1, 1.0, 1, 1.0, (1000,), 1, 0.8)


def with_rounds(effort: Effort, rounds: int) -> Effort:
    """The same with another number of CPU rounds."""
    return replace(effort, cpu_rounds=rounds)
