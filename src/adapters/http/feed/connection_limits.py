"""Who may sit in the live feed: so many altogether, so many of one caller, and so many who have not yet said who they are.

Without the last two, one person's runaway script, or anybody who opens connections and says nothing, would keep all others out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from domain.kernel.caller import ApiKeyCaller, Session


class ConnectionLimitError(Exception):
    """There is no seat. The text says why, in at most 120 bytes."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Connections at one moment: of everybody, of one member or key, and of those without credentials in query or header."""

    total: int = 5_000
    per_caller: int = 1_000
    unauthenticated: int = 500


class ConnectionLimiter:
    def __init__(self, bounds: ConnectionLimits) -> None:
        self._limits = bounds
        self.connection_count = 0
        self._unauthenticated = 0
        self._by_caller: Counter[str] = Counter()

    @contextmanager
    def reserve(self) -> Iterator[None]:
        """Raises Full."""
        if self.connection_count >= self._limits.total:
            raise ConnectionLimitError("Too many clients. Come back in a moment.")
        self.connection_count += 1
        try:
            yield
        finally:
            self.connection_count -= 1

    @contextmanager
    def reserve_unauthenticated(self) -> Iterator[None]:
        """While a client is awaited to say who it is. Raises Full."""
        if self._unauthenticated >= self._limits.unauthenticated:
            raise ConnectionLimitError(
                "Too many clients have yet to sign in. Come back, or give the token in the query or a header."
            )
        self._unauthenticated += 1
        try:
            yield
        finally:
            self._unauthenticated -= 1

    @contextmanager
    def reserve_for_caller(self, viewer: Session | ApiKeyCaller) -> Iterator[None]:
        """Raises Full."""
        who = viewer.key_id if isinstance(viewer, ApiKeyCaller) else viewer.membership_id
        if self._by_caller[who] >= self._limits.per_caller:
            raise ConnectionLimitError(f"You have {self._limits.per_caller} connections open. Close some, or share one.")
        self._by_caller[who] += 1
        try:
            yield
        finally:
            self._by_caller[who] -= 1
            if not self._by_caller[who]:
                del self._by_caller[who]
