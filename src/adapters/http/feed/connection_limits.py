"""Limits the connections of the live feed: in total, per caller, and of clients that have not authenticated yet.

Without the last two limits, one runaway script, or a client that opens connections and never authenticates, could lock out all
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from domain.kernel.caller import ApiKeyCaller, Session


class ConnectionLimitError(Exception):
    """A limit is reached. The message is the close reason, at most 120 bytes."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Concurrent connections: in total, per member or key, and of clients without credentials in query or header."""

    total: int = 5_000
    per_caller: int = 1_000
    unauthenticated: int = 500


class ConnectionLimiter:
    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self.connection_count = 0
        self._unauthenticated = 0
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Hold one of the connections. Raises ConnectionLimitError."""
        if self.connection_count >= self._limits.total:
            raise ConnectionLimitError("Too many connections. Try again in a moment.")
        self.connection_count += 1
        try:
            yield
        finally:
            self.connection_count -= 1

    @contextmanager
    def reserve_unauthenticated(self) -> Iterator[None]:
        """Hold one of the connections that wait for credentials. Raises ConnectionLimitError."""
        if self._unauthenticated >= self._limits.unauthenticated:
            raise ConnectionLimitError("Too many unauthenticated connections. Retry, or send the token in the query or a header.")
        self._unauthenticated += 1
        try:
            yield
        finally:
            self._unauthenticated -= 1

    @contextmanager
    def reserve_for_caller(self, viewer: Session | ApiKeyCaller) -> Iterator[None]:
        """Hold one of this caller's connections. Raises ConnectionLimitError."""
        caller = viewer.key_id if isinstance(viewer, ApiKeyCaller) else viewer.membership_id
        if self._by_caller[caller] >= self._limits.per_caller:
            raise ConnectionLimitError(f"You have {self._limits.per_caller} connections open. Close some, or share one.")
        self._by_caller[caller] += 1
        try:
            yield
        finally:
            self._by_caller[caller] -= 1
            if not self._by_caller[caller]:
                del self._by_caller[caller]
