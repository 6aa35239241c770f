"""`python -m tests.bench`: see the README beside this file."""

from __future__ import annotations

import argparse
import gc
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from . import candidates, scenarios
from .candidates import DIRECT
from .processes import open_file_limit
from .report import Report
from .runner import Bench, Order
from .upstream import Provider

_RESULTS = Path(__file__).with_name("results")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description="Measure the gateway beside its peers.")
    parser.add_argument("--quick", action="store_true", help="one short round of everything, about a minute")
    parser.add_argument("--only", default=",".join(scenarios.GROUPS), help="groups, comma-separated (all: %(default)s)")
    parser.add_argument("--cand", default=",".join(candidates.NAMES), help="candidates (all: %(default)s)")
    parser.add_argument("--out", type=Path, help="results file, JSON lines (default: a new one in tests/bench/results)")
    parser.add_argument("--rounds", type=int, help="rounds of the CPU figures")
    return parser.parse_args()


def _chosen(text: str, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    strange = [name for name in names if name not in known]
    if strange:
        sys.exit(f"no such {what}: {', '.join(strange)}; there are {', '.join(known)}")
    return tuple(name for name in known if name in names)


def _cores() -> tuple[int, int]:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) == 1:
        print("one core only: the load takes part of what is measured", file=sys.stderr)
    return cores[0], cores[-1] if len(cores) == 1 else cores[1]


def _order(arguments: argparse.Namespace) -> Order:
    groups = _chosen(arguments.only, scenarios.GROUPS, "group")
    names = _chosen(arguments.cand, candidates.NAMES, "candidate")
    if "latency" in groups and DIRECT not in names:
        names = (DIRECT, *names)  # what is added is the difference to it
    for name in names:
        reason = candidates.missing(name)
        if reason:
            print(f"left out: {reason}", file=sys.stderr)
    effort = scenarios.QUICK if arguments.quick else scenarios.FULL
    if arguments.rounds:
        effort = scenarios.with_rounds(effort, arguments.rounds)
    proxy_core, load_core = _cores()
    return Order(
        names=tuple(name for name in names if not candidates.missing(name)),
        groups=frozenset(group for group in scenarios.GROUPS if group in groups),
        effort=effort,
        proxy_core=proxy_core,
        load_core=load_core,
    )


def _check_open_files(order: Order) -> None:
    """Every silent stream takes two sockets here, a client's and the provider's."""
    allowed, needed = open_file_limit(), 2 * max(order.effort.memory_streams) + 500
    if "memory" in order.groups and allowed < needed:
        print(f"only {allowed} open files are allowed, {needed} would be needed: streams will be lost", file=sys.stderr)


async def _run(order: Order, out: Path) -> str:
    provider = await Provider.start()
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as home, out.open("a", encoding="utf-8") as file:
            records = await Bench(order, provider, Path(home), file).run()
    finally:
        provider.close()
    return Report(records, order.names).markdown()


def main() -> None:
    """Run what the command line asks for; the exit status does not depend on the figures."""
    arguments = _arguments()
    order = _order(arguments)
    out: Path = arguments.out or _RESULTS / time.strftime("%Y%m%d-%H%M%S.jsonl")
    out.parent.mkdir(parents=True, exist_ok=True)
    _check_open_files(order)
    os.sched_setaffinity(0, {order.load_core})
    gc.disable()  # collected between measurements; a pause of ours would count as the candidate's
    start = time.monotonic()
    table = uvloop.run(_run(order, out))
    print(f"\nPython {platform.python_version()}, {platform.machine()}, {time.monotonic() - start:.0f} s, {out}\n")
    print(table)


if __name__ == "__main__":
    main()
