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
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from adapters.http.core.callers import Network, address_block, is_in_networks
from domain.kernel.dataclasses import service


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


@dataclass(eq=False, slots=True)
class TrackedHttpConnection:
    block: str
    is_unlimited: bool
    client: AbortableHttpServerConnection
    state: HttpConnectionPhase = HttpConnectionPhase.PENDING
    has_failed: bool = False


@service
class HttpConnectionLimiter:
    """`unlimited` addresses are neither limited alone nor banned: loopback, and proxies, behind which is anybody. `clock` gives
    monotonic seconds."""

    bans: AddressBans
    total: int = 10_000
    per_address: int = 5_000
    unlimited: tuple[Network, ...] = ()
    clock: Callable[[], float] = time.monotonic
    refused: Counter[str] = field(default_factory=Counter, init=False)
    """By reason, since the start."""
    evicted: Counter[str] = field(default_factory=lambda: Counter({each.value: 0 for each in HttpConnectionPhase}), init=False)
    """By state, since the start."""
    _by_address: dict[str, dict[TrackedHttpConnection, None]] = field(default_factory=dict, init=False)
    _open: int = field(default=0, init=False)

    def open(self, address: str, client: AbortableHttpServerConnection) -> TrackedHttpConnection | None:
        """Count a new connection; it may close another one. None when this one must be closed."""
        block, is_unlimited = address_block(address), is_in_networks(address, self.unlimited)
        own = self._by_address.get(block, {})
        reason = ""
        if not is_unlimited and self.bans.is_banned(block, self.clock()):
            reason = "banned"
        elif not is_unlimited and len(own) >= self.per_address and not self._make_room([own]):
            reason = "address_full"
        elif self._open >= self.total and not self._make_room(self._largest_first()):
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
        self.bans.record_success(connection.block, self.clock())

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
            self.bans.record_failure(connection.block, self.clock())

    def connection_counts(self) -> dict[str, float]:
        """Open connections by state."""
        found = Counter(each.state.value for of_address in self._by_address.values() for each in of_address)
        return {state.value: found[state.value] for state in HttpConnectionPhase}

    def banned_count(self) -> int:
        return self.bans.count(self.clock())

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


FIRST_BAN_S = 1.0
SUCCESS_PROTECTS_S = 24 * 3600.0
"""Behind one address there may be a whole company and one program with a mistake."""
FORGET_AFTER_S = 600.0
"""Failures are forgotten when none comes for this long after the longest ban."""
MAX_RECORDS = 20_000
PURGE_INTERVAL_S = 10.0
"""The pause between two searches for records to forget: a search reads all of them."""


@dataclass(slots=True)
class _AddressBanState:
    failures: int = 0
    failed_at: float = float("-inf")
    succeeded_at: float = float("-inf")
    banned_until: float = float("-inf")


@service
class AddressBans:
    """Which addresses are refused for a while, because all their connections fail. Times are monotonic seconds. `ban_after`:
    failures in a row before the first ban; 0 switches bans off.

    The broker has the same rule for MQTT (rust/broker/src/addresses.rs)."""

    ban_after: int
    ban_max_s: float = 600.0
    _records: dict[str, _AddressBanState] = field(default_factory=dict, init=False)
    _purged_at: float = field(default=float("-inf"), init=False)

    def is_banned(self, block: str, now: float) -> bool:
        record = self._records.get(block)
        return record is not None and now < record.banned_until

    def count(self, now: float) -> int:
        return sum(now < record.banned_until for record in self._records.values())

    def record_failure(self, block: str, now: float) -> None:
        record = self._record(block, now)
        if not self.ban_after or record is None or now - record.succeeded_at < SUCCESS_PROTECTS_S:
            return
        if now - record.failed_at >= self.ban_max_s + FORGET_AFTER_S:
            record.failures = 0
        record.failures += 1
        record.failed_at = now
        doublings = record.failures - self.ban_after
        if doublings >= 0:
            record.banned_until = now + min(self.ban_max_s, FIRST_BAN_S * 2 ** min(doublings, 20))

    def record_success(self, block: str, now: float) -> None:
        record = self._record(block, now)
        if record is not None:
            record.succeeded_at, record.failures, record.banned_until = now, 0, float("-inf")

    def _record(self, block: str, now: float) -> _AddressBanState | None:
        """None when the memory is full: then the limits on connections alone protect the service."""
        found = self._records.get(block)
        if found is not None:
            return found
        if len(self._records) >= MAX_RECORDS and now - self._purged_at >= PURGE_INTERVAL_S:
            self._purged_at = now
            self._records = {name: each for name, each in self._records.items() if self._is_recent(each, now)}
        if len(self._records) >= MAX_RECORDS:
            return None
        return self._records.setdefault(block, _AddressBanState())

    def _is_recent(self, record: _AddressBanState, now: float) -> bool:
        return now - record.succeeded_at < SUCCESS_PROTECTS_S or now - record.failed_at < self.ban_max_s + FORGET_AFTER_S
