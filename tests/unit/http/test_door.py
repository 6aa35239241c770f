"""What is looked up for an address that sends keys which are none."""

from __future__ import annotations

from aiohttp import web

from gateway.core.accounts import Key, Tier
from gateway.core.errors import GatewayError
from gateway.http.door import Door
from gateway.http.errors import error_response
from gateway.http.intake import credential
from gateway.http.server import ServerLimits
from gateway.policy.strangers import REFUSED_FROM, UNHEARD_FROM, Strangers
from gateway.wire.hops import networks
from tests.support.door import open_door, request

KEY = Key("k", "acme", Tier("pro"))


class Keys:
    """A book of keys that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known: set[str] = set()

    async def find(self, secret: str) -> Key | None:
        self.asked.append(secret)
        return KEY if secret in ("good", "unseen") else None

    def knows(self, secret: str) -> bool:
        return secret in self.known


async def outcomes(keys: Keys, *secrets: str) -> list[int]:
    """The statuses of requests with *secrets*, all of them from one address and within one minute."""
    door = Door(keys, Strangers(lambda: 0.0), networks("127.0.0.1"))

    async def handle(asked: web.BaseRequest) -> web.StreamResponse:
        try:
            found = await door.key_of(asked, credential(asked))
        except GatewayError as error:
            return error_response("/", error, "req_1")
        return web.Response(status=401 if found is None else 200)

    async with open_door(handle, ServerLimits()) as server:
        headers = ("X-Forwarded-For: 1.2.3.4", "Connection: close")
        return [(await server.ask(request("/", *headers, key=secret))).status for secret in secrets]


async def test_a_good_key_is_looked_up_among_wrong_ones() -> None:
    """One that the process has not seen is found as long as it is no flood."""
    keys = Keys()

    statuses = await outcomes(keys, *["wrong"] * (REFUSED_FROM + 5), "unseen")

    assert statuses[-2:] == [429, 200]
    assert len(keys.asked) == REFUSED_FROM + 6


async def test_in_a_flood_nothing_unknown_is_looked_up() -> None:
    """Then keys that the process knows are asked for and no others."""
    keys = Keys()
    keys.known.add("good")

    statuses = await outcomes(keys, *["wrong"] * UNHEARD_FROM, "unseen", "good")

    assert statuses[-2:] == [429, 200]
    assert (keys.asked.count("unseen"), keys.asked.count("good")) == (0, 1)
