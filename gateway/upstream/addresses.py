"""Which addresses belong to the public internet, in the strictest reading."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# IANA's special-purpose registry for IPv4 (RFC 6890 and its updates), multicast and class E; and one address that is
# public by number only.
_BLOCKED_V4 = tuple(
    IPv4Network(net)
    for net in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is Alibaba's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's platform service, reachable from every machine there
        "169.254.0.0/16",  # link-local, with the metadata service of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 is Oracle's metadata service
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)

# IPv6 is public only inside the global unicast range. That leaves out ::, ::1, IPv4-compatible ::/96, NAT64
# 64:ff9b::/96 and 64:ff9b:1::/48, discard 100::/64, ULA fc00::/7, link-local fe80::/10 and multicast ff00::/8.
_GLOBAL_V6 = IPv6Network("2000::/3")
_BLOCKED_V6 = tuple(
    IPv6Network(net)
    for net in (
        "2001::/23",  # protocol assignments: Teredo 2001::/32, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)


def is_public(address: str) -> bool:
    """Whether *address*, as handed to `connect`, is a public unicast one.

    Only the canonical spelling is taken: 0177.0.0.1, 2130706433, zone ids and names are not public. IPv4 inside IPv6
    is judged by the IPv4 where the kernel would use that (`::ffff:0:0/96`) and refused in every other embedding.
    """
    if "%" in address:
        return False
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is None:
            return parsed in _GLOBAL_V6 and not any(parsed in net for net in _BLOCKED_V6)
        parsed = parsed.ipv4_mapped
    return _is_public_v4(parsed)


def _is_public_v4(address: IPv4Address) -> bool:
    return not any(address in net for net in _BLOCKED_V4)
