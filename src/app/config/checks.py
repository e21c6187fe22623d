"""Types of settings with a check. A check raises ValueError, which says what is allowed.

Checks of URLs and addresses in settings. Each raises ValueError that says what is allowed.

The address under which devices on the network reach a server of this machine.

A microcontroller asks only DNS: it knows neither the hosts file nor the search domain that make the bare host name work on this
machine. So the default in device credentials is an address.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, SecretStr

from adapters.http.core.callers import parse_networks


def parse_server_url(value: str, schemes: tuple[str, ...], fault: str) -> SplitResult:
    """A URL with a host and without a path. `fault` is what the ValueError says."""
    try:
        url = urlsplit(value)
        if url.scheme in schemes and url.hostname and url.port != 0 and not url.path.strip("/"):
            return url
    except ValueError:
        pass  # it says less than `fault`
    raise ValueError(fault)


def public_url(value: str) -> str:
    """The URL without a slash at its end."""
    fault = "must be a URL without a path, such as https://latchboard.example.com"
    url = parse_server_url(value, ("http", "https"), fault)
    if url.query or url.fragment or url.username:
        raise ValueError(fault)
    return value.rstrip("/")


def check_mqtt_url(value: str, allowed: str) -> None:
    fault = f"{allowed} a URL such as mqtt://user:password@host:1883; write @ : / % # in the password percent-encoded"
    parse_server_url(value, ("mqtt", "mqtts"), fault)


def is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # a zone id names an interface of one machine, and may contain any character


def checked(check: Callable[[str], object]) -> AfterValidator:
    """For a text that `check` accepts, or a secret one."""

    def validate(value: Any) -> Any:
        check(value.get_secret_value() if isinstance(value, SecretStr) else value)
        return value

    return AfterValidator(validate)


Networks = Annotated[str, checked(parse_networks)]
"""Addresses and networks, comma-separated."""
PublicUrl = Annotated[str, AfterValidator(public_url)]
"""A URL without a path."""


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
