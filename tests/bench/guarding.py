"""
What guards add to a call before its provider is asked: `python -m tests.bench.guarding`.

Through the stage, with all engines there are, each kind of call in turn with and without rules in one run, so that a
busy machine is busy for both: a prompt of 1 KB that nobody has sent before, a chat of 20 KB that has grown by a turn,
and an agent's call with thirty tools, seen before. Then through the gateway as it is served, with a provider that
answers at once, for two keys by turns. Prints milliseconds.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvloop

from gateway.core.accounts import Key, Tier
from gateway.core.call import Call, CallOptions
from gateway.core.exchange import Exchange
from gateway.core.guarding import GuardTerms, Rules
from gateway.dialects.registry import CLIENT_DIALECTS
from gateway.guards.table import make_engines
from gateway.pipeline.scanning import Means, Memory, Scanner
from gateway.pipeline.stages.guard import Guard, GuardWatch
from gateway.pipeline.turns import Turns
from tests.support.config import KEY, standard
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.notation import json_answer
from tests.support.provider import FakeProvider

ROUNDS, SERVED_ROUNDS, WARM = 300, 400, 20
DEADLINE_S = 5.0  # none is late on a busy machine
WORDS = re.findall(
    r"\w+",
    "the of and report meeting we yang dengan untuk data model result please check order table value kami "
    "hari ini server update review customer invoice travel weather plan school dan tidak "
    "akan bisa number list write summary",
)
GUARDED = KEY + "-guarded"


def prose(chance: random.Random, chars: int) -> str:
    """Words of both languages that nobody has put together before."""
    said: list[str] = []
    while sum(map(len, said)) + len(said) < chars:
        said.append(chance.choice(WORDS))
    return " ".join(said)[:chars]


def asked(turns: Sequence[str], tools: int = 0) -> Call:
    """A call with these turns, and so many tools."""
    schema = {
        "type": "object",
        "properties": {f"arg_{n}": {"type": "string", "description": "Words."} for n in range(6)},
    }
    offered = [
        {"type": "function", "function": {"name": f"tool_{n}", "description": f"Does thing {n}.", "parameters": schema}}
        for n in range(tools)
    ]
    roles = itertools.cycle(("user", "assistant"))
    messages = [{"role": role, "content": turn} for role, turn in zip(roles, turns, strict=False)]
    body = {"model": "m", "messages": messages, **({"tools": offered} if offered else {})}
    return CLIENT_DIALECTS["openai_chat"].read_call(json.dumps(body).encode(), CallOptions(), ())


def new_prompts(chance: random.Random) -> Iterator[Call]:
    """Each of 1 KB."""
    while True:
        yield asked([prose(chance, 1000)])


def growing_chats(chance: random.Random) -> Iterator[Call]:
    """Chats of 20 KB, each with a turn more than the one before; a new one after forty."""
    while True:
        turns = [prose(chance, 1000) for _ in range(20)]
        for _ in range(40):
            turns = [*turns[2:], prose(chance, 1000), prose(chance, 1000)]
            yield asked(turns)


def agents(chance: random.Random) -> Iterator[Call]:
    """Calls with the same thirty tools and a new turn."""
    while True:
        yield asked([prose(chance, 400)], tools=30)


KINDS: Mapping[str, Callable[[random.Random], Iterator[Call]]] = {
    "a new prompt of 1 KB": new_prompts,
    "a chat of 20 KB, a turn more": growing_chats,
    "an agent with 30 tools": agents,
}


async def measure(rules: Mapping[str, Rules], calls: Iterator[Call], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """Milliseconds in the stage under each of *rules*, which has a memory of its own; by turns, with the same calls."""
    took: dict[str, list[float]] = {name: [] for name in rules}
    engines = make_engines()
    with ThreadPoolExecutor(2) as threads:
        means, watch = Means(Turns(threads), time.monotonic), GuardWatch(lambda *_: None, lambda *_: None)
        stages = {name: Guard(Scanner(engines, Memory(b"bench"), means), watch, time.monotonic) for name in rules}
        for number, call in enumerate(itertools.islice(calls, rounds + WARM)):
            for name, one in rules.items():
                key = Key("bench", "acme", Tier("any"), rules=one)
                exchange = Exchange("req_1", "t", "e", call, key, 0.0)
                begun_s = time.perf_counter()
                await stages[name].admit(exchange)
                if number >= WARM:
                    took[name].append((time.perf_counter() - begun_s) * 1000)
    return took


async def measure_served(rounds: int = SERVED_ROUNDS) -> dict[str, list[float]]:
    """Milliseconds of whole calls, for a key without rules and one under every guard there is, by turns."""
    chance, took = random.Random(1), {"no rules": list[float](), "all guards": list[float]()}
    async with FakeProvider() as provider:
        config = standard(provider.base_url)
        config["policies"] = {"all": {"guardrails": {name: {"mode": "block"} for name in make_engines()}}}
        config["keys"][GUARDED] = {"tenant": "guarded", "tier": "enterprise", "policy": "all"}
        provider.script("m", [json_answer("Fine.")])
        async with Gateway(config, flags=PLAIN) as gateway:
            for number in range(rounds + WARM):
                for name, key in (("no rules", KEY), ("all guards", GUARDED)):
                    body: dict[str, Any] = {
                        "model": "m",
                        "messages": [{"role": "user", "content": prose(chance, 1000)}],
                    }
                    begun_s = time.perf_counter()
                    reply = await gateway.client(key).request("POST", CHAT, body)
                    if reply.status != 200:
                        raise RuntimeError(f"a prompt of the bench was refused: {reply.body!r}")
                    if number >= WARM:
                        took[name].append((time.perf_counter() - begun_s) * 1000)
    return took


def told(title: str, took: Mapping[str, Sequence[float]]) -> None:
    """A line for each, beside what the first one took."""
    base = statistics.median(next(iter(took.values())))
    print(title, flush=True)
    for name, took_ms in took.items():
        parts = statistics.quantiles(took_ms, n=100)
        print(f"  {name:20}{len(took_ms):8}{parts[49]:9.3f}{parts[98]:9.3f}{parts[49] - base:+9.3f}", flush=True)


def all_rules() -> dict[str, Rules]:
    """None, each engine alone, and all of them."""
    names = list(make_engines())
    alone = {name: Rules({name: GuardTerms("block", deadline_s=DEADLINE_S)}) for name in names}
    together = Rules({name: GuardTerms("block", deadline_s=DEADLINE_S) for name in names})
    return {"no rules": Rules({}), **alone, "all guards": together}


async def main() -> None:
    print(f"{'ms':22}{'calls':>8}{'p50':>9}{'p99':>9}{'added':>9}")
    for title, kind in KINDS.items():
        told(title, await measure(all_rules(), kind(random.Random(1))))
    told("served, a new prompt of 1 KB", await measure_served())


if __name__ == "__main__":
    uvloop.run(main())
