"""Checks of URLs and addresses in settings. Each raises ValueError that says what is allowed."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit


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
