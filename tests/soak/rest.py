"""What must be gone when nothing goes on: open calls, sockets, leases and holds, and memory that only grew."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.storage.journal.stream_store import REGISTRY
from tests.support.gateway import Gateway
from tests.support.redis import Redis

from .processes import ProviderProcess
from .verdict import Verdict

# Of one process: a leak of 700 bytes a call is noticed in the 1,500 calls of a step of a small run, of 150 in the 7,000
# of a full one (reliability, G2: 50). A control run without disturbances grew by 496 KiB from its 2,000th to its
# 4,000th call, and by 380 in the 8,000 that followed; beside other load one step of 1,124 KiB was seen.
DRIFT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Growth:
    """Of the memory of the worker that grew most: bytes, in so many calls."""

    grown: int
    calls: int


@dataclass(slots=True)
class Rest:
    """
    A service at rest.

    Attributes:
        memory: None where it was not measured.
        left: What was not gone, by name.
        quiet_s: How long it took to come to rest.
        verified: Exit code and words of `gateway ledger verify`.
    """

    memory: Growth | None = None
    left: dict[str, int] = field(default_factory=dict)
    quiet_s: float = 0.0
    verified: tuple[int, str] | None = None


async def leftovers(
    gateway: Gateway, provider: ProviderProcess, redis: Redis | None, workers: int
) -> dict[str, int]:  # fmt: skip
    """What still is open or held, where *workers* processes serve."""
    metrics = await gateway.metrics()
    return {
        "streams": int(metrics.value("gateway_open_streams")),
        "requests at the provider": await provider.open_requests(),
        "sockets to the provider": gateway.sockets(provider.port),
        "sockets of customers": gateway.client_sockets(),
        **(held(redis) if redis is not None else {}),
        **({"journals of the dead": max(0, journals(redis) - workers)} if redis is not None else {}),
    }


def journals(redis: Redis) -> int:
    """Those that are in Redis: of a process that died one is taken over when its lease has ended."""
    return _whole(redis.command("HLEN", REGISTRY))


def held(redis: Redis) -> dict[str, int]:
    """Leases and holds that the counters still keep, and what is held of accounts."""
    names = redis.keys()
    accounts = [name for name in names if ":account:" in name and redis.command("TYPE", name) == "hash"]
    return {
        "leases": sum(_whole(redis.command("ZCARD", name)) for name in names if ":running:" in name),
        "holds": sum(":hold:" in name for name in names),
        "held of accounts": sum(_whole(redis.command("HGET", name, "held")) for name in accounts),
    }


def _whole(reply: object) -> int:
    """A number, however it is written; None where there is nothing."""
    return int(str(reply)) if reply is not None else 0


def judge_rest(rest: Rest, verdict: Verdict) -> None:
    """Everything is gone, and memory stayed."""
    for name, count in rest.left.items():
        if count:
            verdict.blame("left behind", name, count)
    if rest.verified is not None and rest.verified[0]:
        verdict.blame("ledger verify", "-", rest.verified)
    verdict.figures["seconds until all was settled"] = round(rest.quiet_s, 1)
    if rest.memory is not None:
        verdict.figures["memory, KiB grown by the worst worker"] = (
            f"{rest.memory.grown // 1024} in {rest.memory.calls} calls"
        )
        if rest.memory.grown > DRIFT_BYTES:
            verdict.blame("memory", "-", f"{rest.memory} bytes")
