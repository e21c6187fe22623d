"""Limits the connections of the live feed: in total, per caller, and of clients that have not authenticated yet.

Without the last two limits, one runaway script, or a client that opens connections and never authenticates, could lock out all
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from adapters.http.core.ip_address_block import address_block, is_in_networks
from adapters.http.core.trusted_proxies import Network
from domain.kernel.caller import ApiKeyCaller, SessionCaller

_SEND_EARLY = "Send the token in the query or a header."


class FeedConnectionLimitError(Exception):
    """A limit is reached. The message is the close reason, at most 120 bytes."""


@dataclass(frozen=True, slots=True)
class FeedConnectionMaximums:
    """Concurrent connections: in total, per member or key, and of clients without credentials in query or header; of these, per
    address. `unlimited` addresses have no limit of their own."""

    total: int = 5_000
    per_caller: int = 1_000
    unauthenticated: int = 500
    unauthenticated_per_address: int = 50
    unlimited: tuple[Network, ...] = ()


class FeedConnectionLimiter:
    def __init__(self, limits: FeedConnectionMaximums) -> None:
        self._limits = limits
        self.connection_count = 0
        self._unauthenticated: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """By reason, since the start."""
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold one of the connections. Raises FeedConnectionLimitError."""
        if self.connection_count >= self._limits.total:
            raise self._refusal("full", "Too many connections. Try again in a moment.")
        self.connection_count += 1
        try:
            yield
        finally:
            self.connection_count -= 1

    @contextmanager
    def reserve_unauthenticated(self, address: str) -> Iterator[None]:
        """Hold one of the connections that wait for credentials. Raises FeedConnectionLimitError."""
        block, waiting = address_block(address), self._unauthenticated
        is_unlimited = is_in_networks(address, self._limits.unlimited)
        if waiting.total() >= self._limits.unauthenticated:
            raise self._refusal("pending_full", f"Too many unauthenticated connections. {_SEND_EARLY}")
        if not is_unlimited and waiting[block] >= self._limits.unauthenticated_per_address:
            raise self._refusal("address_full", f"Too many unauthenticated connections of your address. {_SEND_EARLY}")
        waiting[block] += 1
        try:
            yield
        finally:
            waiting[block] -= 1
            if not waiting[block]:
                del waiting[block]

    @contextmanager
    def reserve_for_caller(self, viewer: SessionCaller | ApiKeyCaller) -> Iterator[None]:
        """Hold one of this caller's connections. Raises FeedConnectionLimitError."""
        caller = viewer.key_id if isinstance(viewer, ApiKeyCaller) else viewer.membership_id
        if self._by_caller[caller] >= self._limits.per_caller:
            raise self._refusal("caller_full", f"You have {self._limits.per_caller} connections open. Close some, or share one.")
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]

    def _refusal(self, reason: str, message: str) -> FeedConnectionLimitError:
        self.refused[reason] += 1
        return FeedConnectionLimitError(message)
