"""Who sent a request: the last hop that no trusted proxy vouches for, whatever stands left of it (LIM-13)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.hops import MAX_HOPS, networks, sender

PROXIES = networks("10.0.0.0/8, 127.0.0.1, 2001:db8:1::/48")


def address(peer: str | None, *forwarded: str, trusted: str | None = None) -> str | None:
    found = sender(peer, forwarded, PROXIES if trusted is None else networks(trusted))
    return None if found is None else str(found.address)


@pytest.mark.parametrize("trusted", ["", "192.0.2.0/24"])
def test_lim_13_an_untrusted_peer(trusted: str) -> None:
    """LIM-13: what a peer says that is not trusted counts for nothing: the address is its own."""
    assert address("127.0.0.1", "1.2.3.4", trusted=trusted) == "127.0.0.1"


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        (["1.2.3.4"], "1.2.3.4"),
        (["6.6.6.6, 1.2.3.4"], "1.2.3.4"),  # the left one is what the client wrote itself
        (["6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"),
        (["6.6.6.6", "1.2.3.4", "10.9.9.9"], "1.2.3.4"),  # several headers are one list
        (["6.6.6.6, 1.2.3.4", "10.9.9.9,127.0.0.1"], "1.2.3.4"),
        (["10.1.1.1, 10.2.2.2"], "10.1.1.1"),  # nobody but proxies: the first of them
        ([], "10.0.0.1"),
        ([""], "10.0.0.1"),
    ],
)
def test_lim_13_behind_proxies(forwarded: list[str], expected: str) -> None:
    """LIM-13: behind trusted proxies it is the right-most hop that is none of them."""
    assert address("10.0.0.1", *forwarded) == expected


@pytest.mark.parametrize(
    "hop",
    [
        *("unknown", "_hidden", "", " ", "1.2.3", "1.2.3.4.5", "1.2.3.4%eth0", "999.1.1.1", "::g", "[::1", "1.2.3.4:x"),
        *("1.2.3.4:123456", "\udcff", "x" * 10_240, "1" * 65, "١.٢.٣.٤", '"1.2.3.4"', "for=1.2.3.4"),
    ],
)
def test_lim_13_junk(hop: str) -> None:
    """LIM-13: left of a hop that is no address nothing is believed: the proxy that passed it on is the last known."""
    assert address("10.0.0.1", f"6.6.6.6, {hop}, 10.3.3.3") == "10.3.3.3"
    assert address("10.0.0.1", f"6.6.6.6,{hop}") == "10.0.0.1"


@pytest.mark.parametrize(
    ("hop", "expected"),
    [
        ("1.2.3.4:443", "1.2.3.4"),
        ("  1.2.3.4\t", "1.2.3.4"),
        ("2001:db8::7", "2001:db8::7"),
        ("[2001:db8::7]", "2001:db8::7"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        ("[::ffff:1.2.3.4]:5", "1.2.3.4"),
        ("fe80::7%eth0", "fe80::7"),
    ],
)
def test_lim_13_spellings(hop: str, expected: str) -> None:
    """LIM-13: every spelling of an address is that address."""
    assert address("10.0.0.1", hop) == expected


@pytest.mark.parametrize("hop", ["::ffff:10.9.9.9", "10.9.9.9:1234", "[2001:db8:1::5]:80", "2001:db8:1::5%eth0"])
def test_lim_13_a_proxy_by_any_spelling(hop: str) -> None:
    """LIM-13: a trusted proxy is one in every spelling, as a hop and as the peer."""
    assert address("10.0.0.1", f"1.2.3.4, {hop}") == "1.2.3.4"
    assert address(hop, "1.2.3.4") == "1.2.3.4"


def test_lim_13_more_hops_than_anybody_has() -> None:
    """LIM-13: of a list without end the right end is looked at."""
    forwarded = ["6.6.6.6, " * 1000 + "10.0.0.2" + ", 10.0.0.2" * MAX_HOPS]

    assert address("10.0.0.1", *forwarded) == "10.0.0.2"
    assert address("10.0.0.1", "6.6.6.6, " * 1000 + "1.2.3.4, 10.0.0.2") == "1.2.3.4"


@pytest.mark.parametrize("peer", [None, "", "/tmp/socket", "junk"])
def test_a_peer_without_an_address(peer: str | None) -> None:
    """A connection that has no address, such as a local socket, has no sender."""
    assert address(peer, "1.2.3.4") is None


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("10.0.0.1", "192.168.7.7", False),
        ("192.168.7.7", "1.2.3.4", True),
        ("::1", "1.2.3.4", True),
        ("8.8.8.8", "1.2.3.4", False),
        ("10.0.0.1", "unknown", True),
    ],
)
def test_who_may_be_many(peer: str, forwarded: str, expected: bool) -> None:
    """A peer of no public address may be a proxy that nobody named; whom a proxy told of, and a public one, is one."""
    found = sender(peer, [forwarded], PROXIES)

    assert found is not None
    assert found.may_be_many is expected


def test_home() -> None:
    """IPv4 counts by the address, IPv6 by the network that a customer has."""
    homes = [sender(peer, (), ()) for peer in ("1.2.3.4", "2001:db8:1:2:3::4", "2001:db8:1:2:ffff::1")]

    assert [found.home for found in homes if found] == ["1.2.3.4", "2001:db8:1:2::/64", "2001:db8:1:2::/64"]


@given(st.lists(st.text(max_size=80), max_size=5))
def test_lim_13_whatever_is_sent(forwarded: list[str]) -> None:
    """LIM-13: nothing that a client sends before its own proxy's word changes who it is."""
    assert address("10.0.0.1", *forwarded, "1.2.3.4, 10.9.9.9") == "1.2.3.4"


@pytest.mark.parametrize("text", ["junk", "10.0.0.0/33", "10.0.0.1/8", "0.0.0.0/0", "::/0", "10.0.0.0/8,", ","])
def test_what_are_no_networks(text: str) -> None:
    """Junk, host bits, an empty place, and everybody are refused."""
    with pytest.raises(ValueError, match=r".+"):
        networks(text)
