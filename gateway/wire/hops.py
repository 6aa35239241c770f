"""Who sent a request that came through proxies: the last hop that none of ours vouches for (LIM-13)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_HOPS = 32  # looked at, from the right: more proxies in a row than anybody has
_MAX_HOP_CHARS = 64  # the longest, `[IPv6]:port` with an embedded IPv4 address, has 53
_BRACKETED = re.compile(r"\[([^\]]*)\](?::[0-9]{1,5})?")
_WITH_PORT = re.compile(r"([0-9.]{7,15}):[0-9]{1,5}")
_HOME_BITS = 64  # of an IPv6 address: what a provider gives to one customer at the least (RFC 6177)


@dataclass(frozen=True, slots=True)
class Sender:
    """Where a request came from.

    Attributes:
        is_peer: It is the other end of the connection itself; no proxy of ours has told of it.
    """

    address: Address
    is_peer: bool

    @property
    def home(self) -> str:
        """What is counted together: the address, and of IPv6 the network that one customer has."""
        if isinstance(self.address, IPv4Address):
            return str(self.address)
        return str(IPv6Network((self.address, _HOME_BITS), strict=False))

    @property
    def may_be_many(self) -> bool:
        """Whether it may be a proxy that the settings do not name, with any number of clients behind it."""
        return self.is_peer and not self.address.is_global


def networks(text: str) -> tuple[Network, ...]:
    """
    The networks of *text*, separated by commas; an address is a network of its own.

    Raises:
        ValueError: One of them is none, or is everybody.
    """
    found = tuple(ip_network(part.strip()) for part in text.split(",")) if text.strip() else ()
    if any(network.prefixlen == 0 for network in found):
        raise ValueError("everybody would be trusted")
    return found


def sender(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> Sender | None:
    """
    Who sent a request.

    Args:
        peer: Address of the other end of the connection; None where it has none.
        forwarded: Every `X-Forwarded-For`, in order. Each proxy has put the address of its own client behind what was
            there before, so the last hop is as trustworthy as the peer, and what is left of an untrusted one is not.
        trusted: The proxies whose word counts.
    """
    address = _parsed(peer) if peer is not None else None
    if address is None:
        return None
    if not _is_in(address, trusted):
        return Sender(address, is_peer=True)
    is_peer = True
    for hop in _from_the_right(forwarded):
        told = _parsed(hop)
        if told is None:
            break  # `unknown`, or junk: the proxy that passed it on is the last one that is known
        address, is_peer = told, False
        if not _is_in(address, trusted):
            break
    return Sender(address, is_peer)


def _from_the_right(headers: Sequence[str]) -> list[str]:
    hops: list[str] = []
    for header in reversed(headers):
        parts = header.rsplit(",", MAX_HOPS)
        hops += reversed(parts[1:] if len(parts) > MAX_HOPS else parts)  # what is left in one piece is not looked at
        if len(hops) >= MAX_HOPS:
            break
    return hops[:MAX_HOPS]


def _parsed(text: str) -> Address | None:
    """The address of a hop, with or without brackets and port, and without a zone, which is its writer's own."""
    text = text.strip(" \t")
    if len(text) > _MAX_HOP_CHARS:
        return None
    found = _BRACKETED.fullmatch(text) or _WITH_PORT.fullmatch(text)
    try:
        address = ip_address(found[1] if found else text)
    except ValueError:
        return None
    return address if isinstance(address, IPv4Address) else address.ipv4_mapped or IPv6Address(int(address))


def _is_in(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in trusted)
