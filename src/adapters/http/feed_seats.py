"""Who may sit in the live feed: so many altogether, so many of one caller, and so many who have not yet said who they are.

Without the last two, one person's runaway script, or anybody who opens connections and says nothing, would keep all others out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from domain.kernel.caller import ApiKeyCaller, Session


class Full(Exception):
    """There is no seat. The text says why, in at most 120 bytes."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Connections at one moment: of everybody, of one member or key, and of those without credentials in query or header."""

    everybody: int = 5_000
    one_caller: int = 1_000
    silent: int = 500


class Seats:
    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.taken = 0
        self._silent = 0
        self._of: Counter[str] = Counter()

    @contextmanager
    def any(self) -> Iterator[None]:
        """Raises Full."""
        if self.taken >= self._bounds.everybody:
            raise Full("Too many clients. Come back in a moment.")
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1

    @contextmanager
    def silent(self) -> Iterator[None]:
        """While a client is awaited to say who it is. Raises Full."""
        if self._silent >= self._bounds.silent:
            raise Full("Too many clients have yet to sign in. Come back, or give the token in the query or a header.")
        self._silent += 1
        try:
            yield
        finally:
            self._silent -= 1

    @contextmanager
    def of(self, viewer: Session | ApiKeyCaller) -> Iterator[None]:
        """Raises Full."""
        who = viewer.key_id if isinstance(viewer, ApiKeyCaller) else viewer.membership_id
        if self._of[who] >= self._bounds.one_caller:
            raise Full(f"You have {self._bounds.one_caller} connections open. Close some, or share one.")
        self._of[who] += 1
        try:
            yield
        finally:
            self._of[who] -= 1
            if not self._of[who]:
                del self._of[who]
