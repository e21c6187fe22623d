"""Ports for what tests start."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress

PORT_RANGE = range(10_000, 32_000)
"""Below those that Linux gives to connections (`ip_local_port_range`)."""


def free_ports(count: int) -> list[int]:
    """Different ones, free a moment ago, and none that the system gives to a connection: of those, one may be taken while the
    service is down, be it by a client that tries again and, by chance, is given its very goal (TCP then connects to itself)."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", secrets.choice(PORT_RANGE)))
                found.append(probe.getsockname()[1])
    return found
