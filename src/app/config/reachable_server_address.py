"""The address under which devices on the network reach a server of this machine.

A microcontroller asks only DNS: it knows neither the hosts file nor the search domain that make the bare host name work on this
machine. So the default in device credentials is an address."""

from __future__ import annotations

import ipaddress
import socket

_LOOPBACK = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
_OUTSIDE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses for documentation (RFC 5737, RFC 3849): nobody's network has them, so the default route leads there."""


def reachable_address(listening: str) -> str:
    """Where devices reach a server that listens on `listening`, an address or a host name.

    A server on all interfaces is reached at the address of the interface with the default route, IPv4 first. Without such a route
    the result is the loopback address."""
    if not _is_wildcard(listening):
        return listening
    families = [socket.AF_INET, socket.AF_INET6] if ":" in listening else [socket.AF_INET]
    found = (_outgoing_address(family) for family in families)
    return next(filter(None, found), _LOOPBACK[families[-1]])


def is_loopback(listening: str) -> bool:
    """Whether only this machine reaches a server that listens on `listening`, an address or a host name."""
    try:
        return ipaddress.ip_address(listening).is_loopback
    except ValueError:
        return listening == "localhost"


def _is_wildcard(listening: str) -> bool:
    try:
        return ipaddress.ip_address(listening).is_unspecified
    except ValueError:
        return listening == ""


def _outgoing_address(family: socket.AddressFamily) -> str | None:
    """To connect a datagram socket sends nothing: the system only chooses route and source address."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_OUTSIDE[family], 9))
            address: str = probe.getsockname()[0]
    except OSError:
        return None
    return None if ipaddress.ip_address(address).is_unspecified else address
