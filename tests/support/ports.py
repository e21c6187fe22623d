"""Free TCP ports for the processes that tests start."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress

PORT_RANGE = range(10_000, 32_000)
"""Below the ports that Linux gives to outgoing connections (`ip_local_port_range`)."""


def free_ports(count: int) -> list[int]:
    """Distinct ports that were free a moment ago, outside the range of outgoing connections: a client that retries while the
    service is down could otherwise get that port as its own, and TCP would connect to itself."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", secrets.choice(PORT_RANGE)))
                found.append(probe.getsockname()[1])
    return found
