"""Addresses with wrong keys are counted by the minute, in bounded memory."""

from __future__ import annotations

from gateway.policy.strangers import MAX_ADDRESSES, REFUSED_FROM, UNHEARD_FROM, Strangers


class Clock:
    """Seconds that pass when the test says so."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_sixty_a_minute() -> None:
    """The sixty-first failure of a minute is refused until the minute that the first one opened is over."""
    clock = Clock()
    strangers = Strangers(clock)

    early = [strangers.failed("1.2.3.4") for _ in range(REFUSED_FROM)]
    clock.now_s = 20
    refused = strangers.failed("1.2.3.4")
    clock.now_s = 60
    later = strangers.failed("1.2.3.4")

    assert early == [None] * REFUSED_FROM
    assert (refused, later) == (40, None)


def test_each_address_for_itself() -> None:
    """What one address does is no other's fault."""
    strangers = Strangers(Clock())
    for _ in range(REFUSED_FROM + 1):
        strangers.failed("1.2.3.4")

    assert strangers.failed("1.2.3.5") is None


def test_what_is_not_even_looked_up() -> None:
    """From ten a second on nothing unknown of the address is heard until its minute is over."""
    clock = Clock()
    strangers = Strangers(clock)
    for _ in range(UNHEARD_FROM - 1):
        strangers.failed("1.2.3.4")

    before = strangers.unheard_s("1.2.3.4")
    strangers.failed("1.2.3.4")
    clock.now_s = 10
    meanwhile = strangers.unheard_s("1.2.3.4"), strangers.unheard_s("1.2.3.5")
    clock.now_s = 60

    assert (before, meanwhile, strangers.unheard_s("1.2.3.4")) == (None, (50, None), None)


def test_memory() -> None:
    """However many addresses there are, so many are remembered, and none beyond its minute."""
    clock = Clock()
    strangers = Strangers(clock)

    for number in range(MAX_ADDRESSES + 100):
        strangers.failed(str(number))
    most = len(strangers)
    clock.now_s = 61
    strangers.failed("1.2.3.4")

    assert (most, len(strangers)) == (MAX_ADDRESSES, 1)
