"""
The process dies while its call's limits, in Redis, are being asked and its admission is being written.

Whichever of the two was done, nothing is charged, and the call that follows has what the dead one had taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.soak.processes import gateway_command
from tests.support.acts import Pause
from tests.support.crashing import SHARED_POINTS
from tests.support.frames import chat
from tests.support.gateway import CHAT, PLAIN, Gateway
from tests.support.limits import limited, secret, tables
from tests.support.notation import DONE, FIN, R, T, U, json_answer
from tests.support.provider import FakeProvider
from tests.support.redis import server
from tests.support.rows import Ledger

# Starts are seconds of a core, as in `test_crash_points`.
pytestmark = [pytest.mark.xdist_group("crash_points"), pytest.mark.timeout(120)]
FREE_S = 30.0  # after which nothing of a dead process may be held (issue 4)
ONE_CALL = "0.0006"  # USD: one of 50 tokens, and not two
# The states that the call may have by the point at which its process dies.
STATES = {
    "before_grant": [],
    "granted_unheard": [],
    "after_grant": [],
    "after_both": ["voided"],
    "after_first_frame": ["reconciled"],
}


def test_every_point_is_tried() -> None:
    """No point of the kit is left out."""
    assert set(STATES) == {*SHARED_POINTS, "after_first_frame"}


def config(base_url: str, database_url: str, redis_url: str, spool: Path) -> dict[str, Any]:
    # Of no period: what is verified is there whenever the test runs.
    key = {"budgets": [{"scope": "key", "period": "total", "usd": ONE_CALL}], "inflight": 1}
    return limited(base_url, database_url, {"mine": key}, redis_url, ledger={"directory": str(spool)})


@pytest.mark.parametrize("point", STATES)
async def test_dies_at(point: str, tmp_path: Path) -> None:
    """Its place and its money are free as soon as another process has taken its journal over; the call has one end
    where a provider could have been asked, and none before; counters and ledger agree."""
    books = Ledger(tmp_path)
    with server() as redis:
        async with FakeProvider() as provider:
            provider.script("m", [R(), T("One "), Pause(50), T("two"), FIN(), U(7, 3), DONE])
            settings = config(provider.base_url, await tables(tmp_path), redis.url, books.spool)
            command = ("-m", "tests.support.crashing", point, "serve")
            async with Gateway(settings, flags=PLAIN, command=command) as dying:
                dying.expected_exit = -signal.SIGKILL
                with contextlib.suppress(ConnectionError):
                    await dying.client(secret("mine")).request("POST", CHAT, chat("m", max_tokens=50))
                await dying.exit_code()
            asked = len(provider.requests)
            provider.script("m", [json_answer("Hi", (7, 3))])
            async with Gateway(settings, flags=PLAIN) as gateway:
                await gateway.logged("ledger.adopted", within_s=20)
                body = chat("m", stream=False, max_tokens=50)
                async with asyncio.timeout(FREE_S):
                    reply = await gateway.client(secret("mine")).request("POST", CHAT, body)
                charges = await books.until("ledger", lambda rows: any(row["state"] == "settled" for row in rows))
        (tmp_path / "verified.toml").write_text(gateway.config, encoding="utf-8")
        verified = await gateway_command(tmp_path / "verified.toml", "ledger", "verify")

    assert reply.status == 200, reply.body
    assert asked == (1 if point == "after_first_frame" else 0)
    assert [row["state"] for row in charges if row["kind"] == "charge"] == [*STATES[point], "settled"]
    assert verified == (0, "missing/extra/mismatch = 0/0/0; 1 counters in Redis looked at.\n")
