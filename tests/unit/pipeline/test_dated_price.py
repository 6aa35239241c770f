"""Which of a model's prices an exchange is charged by."""

from __future__ import annotations

import pytest

from gateway.core.catalog import Model
from gateway.core.money import Price
from gateway.core.usage import Usage
from gateway.pipeline.settlement import Settlement
from tests.unit.pipeline.scene import EPOCH_S, ONE, Scene, at, route

OLD, NEW = Price(1_000, 1_000, 1_000, 1_000), Price(10_000, 10_000, 10_000, 10_000)


@pytest.mark.parametrize(("change_s", "cost"), [(-1, 40), (0, 40), (1, 4), (60, 4)])
async def test_the_price_of_the_beginning(change_s: int, cost: int) -> None:
    """An exchange has the price of the moment in which it began, also where another one holds when it ends."""
    scene = Scene()
    effective = ((int(EPOCH_S) + change_s, NEW),)
    scene.exchange.model = Model("m", "mid", ONE, OLD, (route("a"),), context_window=9, effective=effective)
    scene.exchange.route, scene.exchange.usage = route("a"), Usage(3, 1)

    await at(5.0)
    receipt = Settlement(scene.exchange, scene.services).settle("completed")

    assert receipt.cost_nano_usd == cost
