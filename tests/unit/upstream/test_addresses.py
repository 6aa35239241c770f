"""Which addresses a caller may make us connect to."""

from __future__ import annotations

import re

import pytest

from gateway.upstream.addresses import is_public

PUBLIC = re.findall(
    r"\S+",
    """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 168.63.129.15
169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
223.255.255.255 2606:4700:4700::1111 2a00:1450:4001:830::200e 2001:4860:4860::8888 2400:cb00::1 ::ffff:8.8.8.8
""",
)

BLOCKED = re.findall(
    r"\S+",
    """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.1.2.3
127.255.255.255 168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1
192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1 198.18.0.1 198.19.255.255
198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 0:0:0:0:0:0:0:1 ::127.0.0.1 ::7f00:1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:7f00:1 ::FFFF:10.0.0.1
0:0:0:0:0:ffff:a9fe:a9fe ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::8.8.8.8 64:ff9b::7f00:1 64:ff9b:1::1
100::1 100:0:0:1::1 fc00::1 fd00:ec2::254 fdff::1 fe80::1 fe80::1%eth0 fe80::1%1 febf::1 fec0::1 ff02::1 ff0e::1
2001::1 2001:0:7f00:1::1 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1 2001:db8::1 2002:7f00:1::1
2002:808:808::1 2620:4f:8000::1 3fff::1 4000::1 5f00::1 2606:4700::1%lo ::1%lo
""",
)

NOT_CANONICAL = re.findall(
    r"\S+",
    """
2130706433 017700000001 0x7f000001 0x7f.1 127.1 127.0.1 0177.0.0.1 0x7f.0.0.1 127.0.0.01 8.8.8.08 134744072
127.0.0.1. 8.8.8.8. [::1] [2606:4700::1] localhost example.com 8.8.8.8/32 8.8.8.8:80 ::1::1 1.2.3 1.2.3.4.5 １.1.1.1
""",
)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    """Ordinary unicast addresses pass, up to the edges of the blocked ranges."""
    assert is_public(address)


@pytest.mark.parametrize("address", BLOCKED)
def test_blocked(address: str) -> None:
    """No special-purpose range passes, in whatever IPv6 dress its IPv4 comes."""
    assert not is_public(address)


@pytest.mark.parametrize("address", [*NOT_CANONICAL, "", " 8.8.8.8", "8.8.8.8 ", "8.8.8.8\0", "8.8.8.8\n"])
def test_not_canonical(address: str) -> None:
    """A spelling that `connect` would never be given is not public, whatever it may mean elsewhere."""
    assert not is_public(address)
