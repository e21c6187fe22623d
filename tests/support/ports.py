"""Free TCP ports for the processes that tests start."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import cycle

PORT_RANGE = range(10_000, 32_000)
"""Below the ports that Linux gives to outgoing connections (`ip_local_port_range`)."""
MAX_WORKERS = 16
"""Each process that runs tests in parallel has ports of its own, so none takes one that another has found and not opened yet."""


def _own_ports() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MAX_WORKERS
    own = PORT_RANGE[worker::MAX_WORKERS]
    first = secrets.randbelow(len(own))
    return cycle([*own[first:], *own[:first]])


_ports = _own_ports()


def free_ports(count: int) -> list[int]:
    """Distinct ports that were free a moment ago and were not found lately, outside the range of outgoing connections: a client
    that retries while the service is down could otherwise get that port as its own, and TCP would connect to itself."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            probe = held.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("127.0.0.1", next(_ports)))
                found.append(probe.getsockname()[1])
    return found
