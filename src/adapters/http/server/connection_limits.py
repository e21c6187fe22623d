"""Limits the open HTTP connections, and decides which one makes room when a limit is reached.

Anybody can open a socket and stay silent, and each open socket takes a file descriptor. So a newcomer takes the place of the
oldest connection that waits for its client, at the address that holds the most: first of one that has shown nothing yet (no
complete request, no credentials for the live feed), then of one between two requests, then of one that has not sent its whole
body or does not read its response. So a silent stranger takes nobody's place, not even that of a client at the same address. A
request that the service works on, and the feed of a client with credentials, are never closed for another.

An address whose connections all fail (silence, or something that is not HTTP) is banned, at first for a second; each further
failure doubles the ban. One complete request within a day protects an address: many clients may share it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from adapters.http.core.ip_address_block import address_block, is_in_networks
from adapters.http.core.trusted_proxies import Network
from adapters.http.server.address_bans import AddressBans


class HttpConnectionPhase(Enum):
    PENDING = "pending"
    """No complete request head, or a feed without credentials."""
    IDLE = "idle"
    """Between two requests."""
    ACTIVE = "active"


class AbortableHttpServerConnection(Protocol):
    """The server's side of one connection."""

    def abort(self) -> None: ...

    def waits_for_client(self) -> bool:
        """In the middle of a request: for the rest of its body, or until the client reads the response."""


@dataclass(frozen=True, slots=True)
class HttpConnectionLimitSettings:
    """`unlimited` addresses are neither limited alone nor banned: loopback, and proxies, behind which is anybody."""

    total: int = 10_000
    per_address: int = 5_000
    ban_after: int = 50
    ban_max_s: float = 600.0
    unlimited: tuple[Network, ...] = ()


@dataclass(eq=False, slots=True)
class TrackedHttpConnection:
    block: str
    is_unlimited: bool
    client: AbortableHttpServerConnection
    state: HttpConnectionPhase = HttpConnectionPhase.PENDING
    has_failed: bool = False


class HttpConnectionLimiter:
    """`clock` gives monotonic seconds."""

    def __init__(self, limits: HttpConnectionLimitSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._by_address: dict[str, dict[TrackedHttpConnection, None]] = {}
        self._open = 0
        self.refused: Counter[str] = Counter()
        """By reason, since the start."""
        self.evicted = Counter({state.value: 0 for state in HttpConnectionPhase})
        """By state, since the start."""
        self.bans = AddressBans(limits.ban_after, limits.ban_max_s)

    def open(self, address: str, client: AbortableHttpServerConnection) -> TrackedHttpConnection | None:
        """Count a new connection; it may close another one. None when this one must be closed."""
        block, is_unlimited = address_block(address), is_in_networks(address, self._limits.unlimited)
        own = self._by_address.get(block, {})
        reason = ""
        if not is_unlimited and self.bans.is_banned(block, self._clock()):
            reason = "banned"
        elif not is_unlimited and len(own) >= self._limits.per_address and not self._make_room([own]):
            reason = "address_full"
        elif self._open >= self._limits.total and not self._make_room(self._largest_first()):
            reason = "full"
        if reason:
            self.refused[reason] += 1
            return None
        connection = TrackedHttpConnection(block, is_unlimited, client)
        self._by_address.setdefault(block, {})[connection] = None
        self._open += 1
        return connection

    def set_state(self, connection: TrackedHttpConnection, state: HttpConnectionPhase) -> None:
        connection.state = state
        of_address = self._by_address.get(connection.block, {})
        if connection in of_address:  # to the end: who has been in its state for the longest time comes first
            of_address[connection] = of_address.pop(connection)

    def record_request(self, connection: TrackedHttpConnection) -> None:
        """A complete request head has come."""
        self.set_state(connection, HttpConnectionPhase.ACTIVE)
        self.bans.record_success(connection.block, self._clock())

    def close(self, connection: TrackedHttpConnection) -> None:
        """The connection is closed, or about to be. A second call does nothing."""
        of_address = self._by_address.get(connection.block, {})
        if connection not in of_address:
            return
        del of_address[connection]
        if not of_address:
            del self._by_address[connection.block]
        self._open -= 1
        if connection.has_failed and not connection.is_unlimited:
            self.bans.record_failure(connection.block, self._clock())

    def connection_counts(self) -> dict[str, float]:
        """Open connections by state."""
        found = Counter(each.state.value for of_address in self._by_address.values() for each in of_address)
        return {state.value: found[state.value] for state in HttpConnectionPhase}

    def banned_count(self) -> int:
        return self.bans.count(self._clock())

    def _largest_first(self) -> Iterable[dict[TrackedHttpConnection, None]]:
        yield max(self._by_address.values(), key=len, default={})
        yield from sorted(self._by_address.values(), key=len, reverse=True)

    def _make_room(self, by_address: Iterable[dict[TrackedHttpConnection, None]]) -> bool:
        addresses = list(by_address)
        for state in HttpConnectionPhase:
            for of_address in addresses:
                oldest = next((each for each in of_address if each.state is state and _waits_for_client(each)), None)
                if oldest is not None:
                    self._evict(oldest)
                    return True
        return False

    def _evict(self, connection: TrackedHttpConnection) -> None:
        connection.has_failed = connection.state is HttpConnectionPhase.PENDING
        self.evicted[connection.state.value] += 1
        self.close(connection)
        connection.client.abort()


def _waits_for_client(connection: TrackedHttpConnection) -> bool:
    return connection.state is not HttpConnectionPhase.ACTIVE or connection.client.waits_for_client()
