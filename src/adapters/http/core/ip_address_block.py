"""Client addresses as limits count them."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from adapters.http.core.trusted_proxies import Network

IPV6_BLOCK_BITS = 64


def address_block(address: str) -> str:
    """One IPv4 address, or the /64 of an IPv6 address, which one subscriber has."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, IPV6_BLOCK_BITS), strict=False))


def is_in_networks(address: str, networks: Sequence[Network]) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = getattr(found, "ipv4_mapped", None) or found
    return any(plain in network for network in networks)
