"""Checks of URLs and addresses in settings. Each raises ValueError that says what is allowed."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def public_url(value: str) -> str:
    """The URL without a slash at its end."""
    try:
        url = urlsplit(value)
        is_origin = url.scheme in ("http", "https") and url.hostname and not url.path.strip("/") and url.port != 0
    except ValueError:
        is_origin = False
    if not is_origin or url.query or url.fragment or url.username:
        raise ValueError("must be a URL without a path, such as https://latchboard.example.com")
    return value.rstrip("/")


def check_mqtt_url(value: str, allowed: str) -> None:
    fault = f"{allowed} a URL such as mqtt://user:password@host:1883; write @ : / % # in the password percent-encoded"
    try:
        url = urlsplit(value)
        if url.scheme not in ("mqtt", "mqtts") or not url.hostname or url.port == 0 or url.path.strip("/"):
            raise ValueError(fault)
    except ValueError:
        raise ValueError(fault) from None


def is_ip_address(text: str) -> bool:
    try:
        return (
            bool(ipaddress.ip_address(text)) and "%" not in text
        )  # a zone id names an interface of one machine, and may contain any character
    except ValueError:
        return False
