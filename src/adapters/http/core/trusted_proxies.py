"""Determines the client's address behind reverse proxies, for throttling and the audit log.

A client can forge `X-Forwarded-For` and `Forwarded`. The header is read only if the peer is a trusted proxy, from the right end,
which the nearest proxy wrote; trusted proxies are skipped, and the first other address is the client's. Only one of the two
headers is read, because a proxy that writes one of them passes a forged other one through.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import structlog

log = structlog.get_logger("proxies")

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

X_FORWARDED_FOR = "X-Forwarded-For"
FORWARDED = "Forwarded"
MAX_HOPS = 32
MAX_ADDRESS_LENGTH = 128
"""The longest IPv6 address has 45 characters, without brackets, port and spaces."""
_FOR_PARAMETER = re.compile(r'(?:^|;)\s*for\s*=\s*("[^"]*"|[^;\s"]+)\s*(?=;|$)', re.IGNORECASE)
_ADDRESS_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d{1,5})?|(\d{1,3}(?:\.\d{1,3}){3}):\d{1,5}")


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse comma-separated addresses and CIDR networks. Raises ValueError that names the invalid one."""
    found = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        try:
            found.append(ipaddress.ip_network(part))
        except ValueError as error:
            raise ValueError(f"{part!r} is neither an address nor a network such as 10.0.0.0/8 ({error})") from None
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The proxies that may report a client's address. Without any, the peer is the client."""

    networks: tuple[Network, ...] = ()
    header: str = X_FORWARDED_FOR
    _ignored_peers: list[str] = field(default_factory=list, compare=False, repr=False)

    def client_address(self, peer: str, values: Sequence[str]) -> str:
        """`values` are the header's lines in order. An unreadable hop ends the search; the last readable address is returned."""
        known = _parse_address(peer)
        if known is None:
            return peer
        if values and not self._ignored_peers and not self._is_trusted(known):
            self._ignored_peers.append(peer)  # once: strangers write this header as often as they like
            log.warning(
                "a peer that is not a trusted proxy sent a forwarding header; it is ignored. If it is your proxy, name it in "
                "LATCHBOARD_TRUSTED_PROXIES; else all its clients share its address",
                peer=peer,
                header=self.header,
            )
        if not self.networks:
            return peer
        hops = [hop for line in values for hop in line.split(",")]
        for hop in reversed(hops[-MAX_HOPS:]):
            if not self._is_trusted(known):
                break
            claimed = _parse_address(_parse_forwarded_for(hop) if self.header == FORWARDED else hop)
            if claimed is None:
                break
            known = claimed
        return str(known)

    def _is_trusted(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


def _parse_forwarded_for(element: str) -> str:
    """The `for` parameter of one element of RFC 7239; empty without one."""
    found = _FOR_PARAMETER.search(element)
    return found[1].strip('"') if found else ""


@lru_cache(1024)
def _parse_address(text: str) -> Address | None:
    """Accepts a port (`1.2.3.4:5`, `[::1]:5`). An IPv4-mapped IPv6 address becomes the IPv4 address."""
    if len(text) > MAX_ADDRESS_LENGTH:
        return None
    text = text.strip()
    with_port = _ADDRESS_WITH_PORT.fullmatch(text)
    try:
        found = ipaddress.ip_address((with_port[1] or with_port[2]) if with_port else text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
