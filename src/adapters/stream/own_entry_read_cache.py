"""The entries that this instance appended lately to one partition: its owner reads them from memory instead of from the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from domain.partitions.ports import InboundLogDamagedError, InboundLogEntry

MAX_BYTES = 64 * 1024
"""For each partition. Whoever reads slower than this instance appends reads from the log."""


class AppendedInboundLogEntryCache:
    def __init__(self) -> None:
        self._entries: deque[InboundLogEntry] = deque()
        self._bytes = 0
        self._last = 0
        """The greatest position that the log gave this instance."""
        self._repeated: int | None = None

    def add(self, entry: InboundLogEntry, *, is_duplicate: bool = False) -> None:
        """`entry`: confirmed. `is_duplicate`: the log had it from an earlier try."""
        if entry.position <= self._last:
            if not is_duplicate:
                self._repeated = entry.position
            return
        self._last = entry.position
        self._entries.append(entry)
        self._bytes += len(entry.body)
        while self._bytes > MAX_BYTES:
            self._drop_first()

    def drop_to(self, position: int) -> None:
        while self._entries and self._entries[0].position <= position:
            self._drop_first()

    def read(self, after: int, limit: int) -> Sequence[InboundLogEntry]:
        """Without a gap from the entry after `after` on, `limit` at most; empty if another instance appended that one.

        Drops those up to `after`: they were read. Who needs them again reads from the log. Raises InboundLogDamagedError.
        """
        if self._repeated is not None:
            raise InboundLogDamagedError(
                f"The cluster's log gave position {self._repeated} to a second entry: it has lost confirmed entries. "
                "docs/how-to/cluster.md says how to continue."
            )
        self.drop_to(after)
        found: list[InboundLogEntry] = []
        for position, entry in enumerate(self._entries, after + 1):
            if entry.position != position or len(found) == limit:
                break
            found.append(entry)
        return found

    def _drop_first(self) -> None:
        self._bytes -= len(self._entries.popleft().body)
